"""Recorded turns as examples of dspy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import dspy
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from .adapter import Signature

_OWN: Final = ("signature", "turn", "feedback", "note")


class TurnExample(dspy.Example):
    """One step of a model in a recorded turn, without a role.

    The fields are those of its Signature, and `with_inputs` is set. What it has besides them is not a field, so no
    optimiser puts it into a prompt or a saved program.

    Attributes:
        signature: The name of the Signature.
        turn: The turn's id. The steps of a turn belong together, for example on one side of a split.
        feedback: `good` or `bad`, as `thread.feedback` stored it; None if nothing was stored.
        note: Why, in a person's words.
    """

    signature: str = ""
    turn: str = ""
    feedback: str | None = None
    note: str | None = None

    def __init__(self, base: Any = None, **fields: Any) -> None:
        super().__init__(base, **fields)
        if isinstance(base, TurnExample):
            for name in _OWN:
                setattr(self, name, getattr(base, name))


def example_of_turn(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], declared: Signature | None, **own: str | None
) -> TurnExample:
    """Make an example.

    Args:
        inputs: The input fields as JSON.
        outputs: The output fields as JSON.
        declared: The Signature, whose types the fields get; None if the agent has none of this name.
        own: What the example has besides its fields.
    """
    fields = {**inputs, **outputs}
    if declared is not None:
        fields = {name: _typed(declared, name, value) for name, value in fields.items()}
    made: TurnExample = TurnExample(fields).with_inputs(*inputs)
    for name, value in own.items():
        setattr(made, name, value)
    return made


def _typed(signature: Signature, name: str, value: Any) -> Any:
    info: Any = signature.fields.get(name)
    if info is None:
        return value
    if info.annotation is dspy.History:
        return dspy.History(messages=value)
    with suppress(PydanticUserError, ValidationError):  # a field that was declared otherwise then
        declared: Any = signature  # mypy takes no class for a key
        return _kind(declared, name).validate_python(value)
    return value


@lru_cache(maxsize=256)  # making one takes longer than all else that an example needs
def _kind(signature: Signature, name: str) -> TypeAdapter[Any]:
    info: Any = signature.fields[name]
    return TypeAdapter(info.annotation)
