"""What rows of the event log must be to be read again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...storage import Moment, Row
from .._stored import TurnStatus

_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[int, Field(ge=1)]


class StoredEvents(Row):
    """A row of `wa_event`."""

    first: _Number
    last: _Number
    lines: str


class StoredRecorded(Row):
    """A row of `wa_recorded`."""

    turn: str
    thread: str
    key: str | None
    asked: str | None
    gone: _Count
    changed: Moment | None


class StoredLook(Row):
    """What a reader is told of a turn beside its events."""

    thread: str
    workspace: str
    status: TurnStatus
    gone: _Count | None
    last: _Number | None


__all__ = ["StoredEvents", "StoredLook", "StoredRecorded"]
