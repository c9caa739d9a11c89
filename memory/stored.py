"""The models of the rows of turns and of the conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Json

from ..core import Tier, check_id
from ..core.errors import InvalidArgument
from ..core.events import TurnKind
from ..core.pauses import UnattendedMode
from ..storage import Moment, Row
from .conversation import MessageKind

_LONGEST: Final = 80


def is_name(value: object) -> bool:
    """Whether a person can have this name: 1 to 80 printable characters in one line, not only blanks."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable() and bool(value.strip())


def check_name(value: str) -> str:
    """Return `value` if a person can have this name.

    Raises:
        InvalidArgument: It is not a valid name; the error does not show the value.
    """
    if is_name(value):
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`name` must be 1 to {_LONGEST} printable characters in one line, not only blanks, got {given}",
        remedy="shorten it, or leave it out",
    )


REQUIRED_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "message": {"text": str},
    "answer": {"text": str},
    "schedule": {"schedule": str, "fired_at": str, "payload": dict},
    "task": {"shape": str, "params": dict},
    "skill": {"shape": str, "params": dict},
    "result": {"to": str, "status": str},
    "summary": {"text": str, "first": str, "last": str, "messages": int, "results": list},
    "done": {"result": dict},
    "failed": {"error": dict},
}
"""The required fields by kind of message, and by status of a result, for a turn to continue from it."""


NAMED_KINDS: Final = ("message", "task", "skill")
"""The kinds of messages that can have the name of the person who speaks."""


def validation_errors(kind: str, body: Mapping[str, Any]) -> list[str]:
    """The names of the invalid fields of a body; empty if it is valid.

    Args:
        kind: The message's kind.
        body: Its body. Attachments are not checked.
    """
    kinds = [kind, str(body.get("status"))] if kind == "result" else [kind]
    needed = {name: wanted for each in kinds for name, wanted in REQUIRED_FIELDS.get(each, {}).items()}
    wrong = [name for name, wanted in needed.items() if not isinstance(body.get(name), wanted)]
    if kind in NAMED_KINDS and not is_name(body.get("name", "nobody")):
        wrong.append("name")
    if kind == "result" and kinds[-1] not in ("done", "failed"):
        wrong.append("status")
    return wrong


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

StoredMoment = Annotated[int, Field(ge=0, lt=253_402_214_400_000_000)]
"""Microseconds since 1970, up to a day before the end of the year 9999, so that it fits every time zone."""


def stored_moment(moment: datetime) -> int:
    """Convert a time to the form in rows.

    Args:
        moment: An aware time.
    """
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Convert microseconds since 1970, as a row has them, to a time in UTC."""
    return _EPOCH + stored * _MICROSECOND


TurnStatus = Literal["running", "paused", "stopped", "done", "failed", "cancelled", "abandoned"]

OPEN: Final[tuple[TurnStatus, ...]] = ("running", "paused", "stopped", "failed")
"""The statuses of a turn that runs or can be resumed."""


class _Noted(BaseModel):
    """What is stored about a turn's role."""

    tiers: list[Tier]
    digest: str | None
    key: str


class _Origin(BaseModel):
    """What is stored about the call that began a turn."""

    caller: str
    modelled: bool
    depth: Annotated[int, Field(ge=0)]
    marks: list[str]
    workers: list[str] = []


def _scope_id(value: str) -> str:
    problem = ""
    try:
        return check_id("id", value)
    except InvalidArgument as error:
        problem = error.problem
    raise ValueError(problem)


_ScopeId = Annotated[str, AfterValidator(_scope_id)]


class StoredTurn(Row):
    """A row of `wa_turn`."""

    id: str
    thread: str
    workspace: _ScopeId
    name: _ScopeId
    account: _ScopeId | None
    channel: _ScopeId | None
    kind: TurnKind
    author: str
    status: TurnStatus
    asked: str
    role: Json[_Noted]
    prompt: str | None
    code: str | None
    graph: str
    began: Moment
    changed: Moment
    model: Json[list[str]] | None
    origin: Json[_Origin] | None
    unattended: UnattendedMode | None


def _object(text: object) -> object:
    """Parse a body. Not with pydantic's JSON parser, which refuses half a surrogate pair."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except RecursionError:
        pass
    raise ValueError("nested too deep")


class StoredMessage(Row):
    """A row of `wa_message`."""

    id: str
    parent: str | None
    depth: Annotated[int, Field(ge=0)]
    turn: str
    author: str
    kind: MessageKind
    body: Annotated[dict[Any, Any], BeforeValidator(_object)]
    at: StoredMoment
    thread: str
