"""Keeps the model steps of a turn as examples, without what they have in common with a role (R7, R12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_jsonable_python

from ..core import Clock
from ..memory.examples import Examples, KeptExample
from ..role_resolution import ResolvedRole
from ..signatures import NOTE, PastStep, Signature, StepMade
from ..signatures.adapter import histories, history_entries, without_unpaired_surrogates
from ..signatures.calling import TOOLS, memory_fields
from ..signatures.media import MEDIA_FIELDS, parts_of
from ..signatures.summaries import without_roles
from ..signatures.texts import with_texts
from ..storage import Lease, Transaction

_CONTENTS: Final = ("images", "files")


@dataclass(slots=True)
class ExampleKeeper:
    """Keeps the examples of one run of a turn. It holds the turn's roles and is never stored.

    An example is written with the next commit of the thread, which records the step, so a killed turn has both or none.

    Attributes:
        turn_id: The turn's id.
        lease: The ownership of the thread.
        stored: The examples of the agent.
        clock: Source of time.
    """

    turn_id: str
    lease: Lease
    stored: Examples
    clock: Clock
    _roles: dict[int, ResolvedRole] = field(default_factory=dict, repr=False)

    def keep(
        self,
        path: str,
        signature: Signature,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        roles: Sequence[ResolvedRole],
        steps: Sequence[PastStep] = (),
    ) -> None:
        """Keep one step of a model. Steps with images, documents or values that are not JSON are left out.

        Args:
            path: The path id of the model call.
            signature: Its Signature, without the role.
            inputs: The input fields.
            outputs: The output fields.
            roles: The roles of the call and its turn.
            steps: The previous steps. Their calls go to the end of the history; a step of a Signature without a
                history is kept only if it is the first.
        """
        self._roles.update({id(role): role for role in roles})
        given = _inputs(signature, inputs, steps)
        if given is None:
            return
        try:
            fields = to_jsonable_python({"inputs": given, "outputs": dict(outputs)})
        except ValueError:  # a value that is not JSON, recursive, or not Unicode
            return
        fields = with_texts(fields, lambda text, in_key: without_unpaired_surrogates(text))  # as the model got them
        fields = without_roles(fields, self._roles.values(), short=True)
        example = KeptExample(turn=self.turn_id, path=path, signature=signature.__name__, **fields)
        at = self.clock.now().timestamp()

        def write(transaction: Transaction) -> None:
            Examples.keep(transaction, example, at)

        self.lease.enqueue(write)


def _inputs(signature: Signature, inputs: Mapping[str, Any], steps: Sequence[PastStep]) -> dict[str, Any] | None:
    """The inputs of an example; None if there cannot be one."""
    given, declared = dict(inputs), signature.input_fields
    if any(name not in declared for name in given if name in MEDIA_FIELDS) or any(map(parts_of, given.values())):
        return None
    calls = [call.text for step in steps if isinstance(step, StepMade) for call in step.calls]
    conversations = histories(signature)
    if calls and not conversations:
        return None
    for name in conversations:
        entries = history_entries(given.get(name))
        given[name] = [{key: each[key] for key in each if key not in _CONTENTS} for each in entries]
    if calls:
        given[conversations[-1]] += [{NOTE: text} for text in calls]
    given |= {name: [] for name in memory_fields(signature)}  # it can have words of turns without consent
    if TOOLS in declared:
        given.setdefault(TOOLS, [])
    return given
