"""What a trace is made of, and who takes it. Protocols and values only; `_tracer` hands them on, `_records` names them.

A sink gets the events of every turn, with the ids they belong to. No text of a model or a person is in them, unless
capture is on; no role ever is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from ...core import CaptureKind, Scope
from ...core.events import Event


@dataclass(frozen=True, slots=True)
class Captured:
    """What a call got or gave, or what a model was asked; only where capture is on.

    Attributes:
        turn_id: The turn's id.
        call_id: The path id of the call or task; of a prompt that of the call, task or turn whose model call it is.
        what: Which of them.
        value: Params or result as JSON; the messages of a prompt, with `[role: N characters]` in the role's place.
    """

    turn_id: str
    call_id: str
    what: CaptureKind
    value: Any


@dataclass(frozen=True, slots=True)
class Dropped:
    """A sink was too slow for a turn's events, or failed, and did not get some of them.

    Attributes:
        turn_id: The turn's id.
        count: How many.
        at: When the last one was dropped.
    """

    turn_id: str
    count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Traced:
    """One thing that happened in a turn, or in a call outside any.

    Attributes:
        scope: The ids that the turn runs under.
        what: An event, without the texts that events have for readers; or what is said of it for traces alone.
    """

    scope: Scope
    what: Event | Captured | Dropped


@runtime_checkable
class TraceSink(Protocol):
    """Takes what happens, for instance to write it down. Implement it to send traces where you want them.

    It is called by one task at a time and holds no turn up. A write that raises, or takes longer than a minute, is not
    repeated; its events count as dropped. The sink is tried again after pauses that grow from a second to a minute.
    """

    async def write(self, items: Sequence[Traced]) -> None:
        """Take what happened since the last call, of all turns, in order."""
        ...

    async def aclose(self) -> None:
        """Let go of files and connections. Another `write` may follow, once the agent is started again."""
        ...


__all__ = ["CaptureKind", "Captured", "Dropped", "TraceSink", "Traced"]
