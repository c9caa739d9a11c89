"""Keeps a role out of text that is made without it. Such text can repeat a person's message that became the role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ...core.errors import RoleEchoed
from ...role_resolution import NO_ROLE, ResolvedRole
from ..echo import EchoGuard
from ..predictor import Answer, Listener, ModelCaller, Predictor
from ..signature import CONVERSE
from ..texts import with_texts

T = TypeVar("T")


async def ask_without_role(
    predictor: Predictor,
    inputs: Mapping[str, Any],
    caller: ModelCaller,
    *,
    role: ResolvedRole,
    listener: Listener,
    names: Iterable[str] = (CONVERSE,),
) -> Mapping[str, Any]:
    """Call a model without the role of the turn, and withhold what its answer has in common with that role (R7, R16).

    Args:
        predictor: The predictor to call.
        inputs: Its input fields.
        caller: The model, the adapter and the options.
        role: The resolved role of the turn or the task.
        listener: Receives tokens.
        names: The Signatures that the role can be attached to.

    Returns:
        The output fields.

    Raises:
        RoleEchoed: `echo` is `fail`, and the answer repeats role text that is not in the inputs.
        OutputInvalid, HostError: See `Predictor`.
    """
    names = tuple(names)
    fields, repeated = _checked(await predictor(inputs, caller, role=NO_ROLE, listener=listener), inputs, role, names)
    if repeated and caller.options.echo == "fail":
        raise RoleEchoed(
            f"the model {caller.connection.name!r} repeated a role in its answer to {predictor.name!r}",
            remedy="try again, or set echo='withhold'",
        )
    return fields


def _checked(
    answer: Answer, inputs: Mapping[str, Any], role: ResolvedRole, names: Iterable[str]
) -> tuple[Mapping[str, Any], bool]:
    """The answer's fields without the role, and whether they repeat text that the model cannot have from its inputs."""
    others: list[str] = []

    def collect(text: str, in_key: bool) -> str:
        others.append(text)
        return text

    with_texts(dict(inputs), collect)
    contents = [content for content in dict.fromkeys(map(role.reveal, names)) if content is not None]
    repeated = any(EchoGuard(content, others=others).scrub_value(answer.fields)[1] for content in contents)
    return scrubbed(answer.fields, role, names), repeated


def scrubbed(given: T, role: ResolvedRole, names: Iterable[str] = (CONVERSE,)) -> T:
    """A text, or a value with texts, without what it has in common with the role of its turn (R7).

    Args:
        given: A text that a model made or got without the role.
        role: The resolved role of the turn or the task.
        names: The Signatures that it can be attached to.
    """
    for content in dict.fromkeys(map(role.reveal, names)):
        if content is not None:
            given = EchoGuard(content).scrub_value(given)[0]
    return given


__all__ = ["ask_without_role", "scrubbed"]
