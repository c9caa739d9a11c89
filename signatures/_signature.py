"""The Signatures this package ships, and what every Signature that takes a role must satisfy (R5, R6, R12, D2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, Field

from ..core.errors import FunctionInvalid
from ._adapter import MEDIA_DESCRIPTIONS, ROLE, Signature

ROLE_DESCRIPTION = "How to go about this; it shapes the answer and adds nothing to what is asked"

CONVERSE = "Converse"
"""The name of the conversation planner's Signature."""

_MEDIA_TYPES: dict[str, Any] = {"attachments": str, "images": list[dspy.Image], "files": list[dspy.File]}
_RESERVED = (ROLE, "completed")
# dspy takes inputs and its own options from the same keywords, so it would take such an input for an option.
_DSPY_KEYWORDS = ("config", "demos", "lm", "new_signature", "prediction", "signature")


class Dispatch(BaseModel):
    """One task that the planner asks for: a worker and what it should do."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    to: str = Field(description="the name of one of those listed")
    request: str = Field(description="all it needs to know, in full sentences")


class ShapeDispatch(BaseModel):
    """One task that the planner asks for where shapes with params of their own are offered too."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    to: str = Field(description="the name of one of those listed")
    request: str = Field(default="", description="for those without params: all it needs to know, in full sentences")
    params: dict[str, Any] = Field(default_factory=dict, description="for those with params")


def with_role(signature: Signature) -> Signature:
    """The same Signature with `role` as its last input field (D2). The instructions are kept, byte for byte.

    Raises:
        FunctionInvalid: The Signature has a field of that name already.
    """
    check_signature(signature)
    roled: Signature = signature.append(ROLE, dspy.InputField(desc=ROLE_DESCRIPTION), type_=str)
    return roled


def with_media(signature: Signature, fields: Iterable[str]) -> Signature:
    """The same Signature with those of `MEDIA_FIELDS` as its last input fields; name and instructions are kept."""
    made = signature
    for name in fields:
        made = made.append(name, dspy.InputField(desc=MEDIA_DESCRIPTIONS[name]), type_=_MEDIA_TYPES[name])
    return named(made, signature.__name__, signature.instructions)


def check_signature(signature: Signature) -> None:
    """Refuse what cannot carry a role or be read back.

    Raises:
        FunctionInvalid: It is no Signature, lacks inputs or outputs, or has a field called `role` or `completed`, or
            an input called as an option of dspy's is.
    """
    if not (isinstance(signature, type) and issubclass(signature, dspy.Signature)):
        raise FunctionInvalid(f"{signature!r} is not a Signature", remedy="pass a subclass of dspy.Signature")
    name = signature.__name__
    reserved = [field for field in _RESERVED if field in signature.fields]
    reserved += [field for field in _DSPY_KEYWORDS if field in signature.input_fields]
    if reserved:
        raise FunctionInvalid(
            f"the Signature {name!r} has a field called {reserved[0]!r}, which is reserved", remedy="rename the field"
        )
    if not signature.input_fields or not signature.output_fields:
        raise FunctionInvalid(
            f"the Signature {name!r} needs input and output fields", remedy="declare at least one of each"
        )


def named(signature: Signature, name: str, instructions: str) -> Signature:
    """A copy of `signature` with another name and other instructions."""
    made: Signature = signature.with_instructions(instructions)
    made.__name__ = made.__qualname__ = name
    return made


class _Reply(dspy.Signature):
    message: str = dspy.InputField()
    reply: str = dspy.OutputField()


class _Work(dspy.Signature):
    request: str = dspy.InputField()
    result: str = dspy.OutputField()


def reply_signature(identity: str) -> Signature:
    """The planner's Signature where nobody can be dispatched to."""
    return named(_Reply, CONVERSE, f"{identity}\n\nReply to the message.")


def plan_signature(identity: str, roster: str, *, params: bool, dispatches_first: bool = False) -> Signature:
    """The planner's Signature where somebody can be dispatched to (D17).

    Args:
        identity: Who the agent is; static text.
        roster: A line for each worker or shape: its name and what it is for.
        params: Whether any of them takes params of its own.
        dispatches_first: Put the list before the reply, which a tiny model gets right more often.
    """
    instructions = (
        f"{identity}\n\nReply to the message. Leave `dispatches` empty unless one of these should do part of the work; "
        f"what it finds reaches you before you reply again:\n{roster}"
    )
    kind: Any = list[ShapeDispatch] if params else list[Dispatch]
    field = dspy.OutputField(default=[])
    if dispatches_first:
        made = _Reply.prepend("dispatches", field, type_=kind)
    else:
        made = _Reply.append("dispatches", field, type_=kind)
    return named(made, CONVERSE, instructions)


def worker_signature(name: str, instructions: str) -> Signature:
    """A worker's entry Signature; it is called as the worker is."""
    return named(_Work, name, instructions)
