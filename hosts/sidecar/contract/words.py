"""The field types that arguments and answers of the contract share. The other modules of this folder use them."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ....core.validation import is_text

CONTRACT: Literal[1] = 1
"""The version of the contract. Every answer has it."""

MAX_ID_CHARACTERS: Final = 200
MAX_JSON_DEPTH: Final = 64  # levels of JSON


class Wire(BaseModel):
    """A part of the contract. It converts no values, forbids extra fields, and quotes no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def _printable(value: str) -> str:
    if value.isprintable() and value.strip():
        return value
    raise PydanticCustomError("not_printable", "It is blank or has characters that cannot be printed")


def _said(value: str) -> str:
    if is_text(value):
        return value
    raise PydanticCustomError("blank", "It is blank or has characters that UTF-8 cannot hold")


def _json(value: dict[str, Any]) -> dict[str, Any]:
    if _depth(value) > MAX_JSON_DEPTH:
        raise PydanticCustomError("too_deep", "It is nested too deep")
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        fits = False
    else:
        fits = True
    if not fits:
        raise PydanticCustomError("not_json", "It has a number or a character that JSON does not have")
    return value


def _depth(value: Any) -> int:
    levels, level = 0, [value]
    while level and levels <= MAX_JSON_DEPTH:
        levels += 1
        level = [part for parent in level for part in _parts(parent)]
    return levels


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _moment(value: str) -> str:
    aware = False
    with suppress(ValueError):  # its message quotes the value
        aware = datetime.fromisoformat(value).tzinfo is not None
    if not aware:
        raise PydanticCustomError("no_moment", "It must be an RFC 3339 time with a time zone")
    return value


Label = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS), AfterValidator(_printable)]
"""Printable characters, not only blanks."""

PersonName = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(_printable)]

Title = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_printable)]

Words = Annotated[str, Field(min_length=1), AfterValidator(_said)]
"""A text that is not blank."""

JsonObject = Annotated[dict[str, Any], AfterValidator(_json)]

Moment = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"format": "date-time"})]

Seq = Annotated[int, Field(ge=0, le=2**53)]


class RoleArgument(Wire):
    """A role of one call, or of a thread."""

    content: Words = Field(
        description="how to go about it, in plain words; 32 KiB of UTF-8 by default",
        examples=["You are terse. Answer in one sentence."],
    )
    name: Label = Field(default="role", description="a label for people; no model sees it", examples=["terse"])
    applies_to: list[Words] = Field(
        default_factory=list, max_length=100, description="globs over Signature names; none is the entry Signature"
    )
    exclusive: bool = Field(default=False, description="whether the tiers below it are left out")

    def __repr__(self) -> str:
        return "<a role>"

    __str__ = __repr__


class WorkspaceArguments(Wire):
    """The arguments of every tool."""

    workspace: Label | None = Field(
        default=None, description="the workspace; may be left out where the token reaches one", examples=["novel"]
    )
    account: Label | None = Field(
        default=None,
        description="who speaks; left out it is the token's only account, else no account",
        examples=["ana"],
    )


class ThreadArguments(WorkspaceArguments):
    """The arguments of every tool that is about one thread."""

    thread: Label = Field(description="the conversation", examples=["t1"])
    channel: Label | None = Field(default=None, description="where the conversation hangs")


__all__ = [
    "CONTRACT",
    "JsonObject",
    "Label",
    "Moment",
    "PersonName",
    "RoleArgument",
    "Seq",
    "ThreadArguments",
    "Title",
    "Wire",
    "Words",
    "WorkspaceArguments",
]
