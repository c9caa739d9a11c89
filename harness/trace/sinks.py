"""Trace sinks: what they get, and the queue that each of them is served from.

A sink gets the events of every turn, with the ids they belong to. No text of a model or a person is in them, unless
capture is on; no role ever is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from ...core import CaptureKind, Scope
from ...core.events import Event, TurnEnded, TurnStarted

_GATHER_SECONDS: Final = 0.1  # before a write, so that a turn is few of them
_WRITE_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 1.0  # until a sink that failed is tried again; doubles with each further failure
_LONGEST_PAUSE_SECONDS: Final = 60.0

_LOG = logging.getLogger("worldagent.traces")


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


class SinkQueue:
    """One sink, its queue and the task that empties it; while nothing waits there is no task.

    A write that failed is not repeated: the sink may have taken part of it. Its events count as dropped, and the next
    write follows after a pause. So memory holds at most what happens in one pause, within `limit`.
    """

    def __init__(self, sink: TraceSink, limit: int) -> None:
        self._sink, self._name = sink, type(sink).__name__
        self._limit = limit
        self._queue: list[Traced] = []
        self._dropped: dict[str, tuple[Scope, int, datetime]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._closed = False
        self._pause = 0.0  # seconds; 0 while the sink works
        self._until = 0.0  # when the pause is over, by the clock of the loop
        self._missed = 0  # events of this outage

    def put(self, item: Traced) -> None:
        """Take one thing; it never waits and never raises."""
        if self._closed:
            return
        what = item.what
        if self._dropped and len(self._queue) < self._limit:
            self._report_dropped()
        if len(self._queue) >= self._limit and not isinstance(what, TurnStarted | TurnEnded):
            self._drop(item)
            return
        if isinstance(what, TurnEnded) and what.turn_id in self._dropped:
            self._report_dropped(what.turn_id)
        self._queue.append(item)
        self._gather()

    def _drop(self, item: Traced) -> None:
        """Count one item that the sink does not get, in its turn and in the outage."""
        what = item.what
        if isinstance(what, Captured):
            return
        _, count, _ = self._dropped.pop(what.turn_id, (item.scope, 0, what.at))
        if isinstance(what, Dropped):  # its events were counted when they were dropped
            count += what.count
        else:
            count += 1
            self._missed += 1 if self._pause else 0
        self._dropped[what.turn_id] = (item.scope, count, what.at)
        if len(self._dropped) > self._limit:  # an outage of many turns: the oldest are in the log's count alone
            del self._dropped[next(iter(self._dropped))]

    def _gather(self) -> None:
        """See that what waits is written in a while, with what comes until then."""
        if self._timer is None and self._writing is None:
            wait = max(_GATHER_SECONDS, self._pause_left())
            # In an empty context: this one may hold what belongs to the turn.
            self._timer = asyncio.get_running_loop().call_later(wait, self._begin, context=Context())

    def _pause_left(self) -> float:
        """Return how many seconds the sink is not tried, after it failed."""
        return max(0.0, self._until - asyncio.get_running_loop().time()) if self._pause else 0.0

    def _report_dropped(self, turn_id: str | None = None) -> None:
        """Put how much was dropped in its place: of one turn, or of all."""
        for each in list(self._dropped) if turn_id is None else [turn_id]:
            scope, count, at = self._dropped.pop(each)
            self._queue.append(Traced(scope, Dropped(each, count, at)))

    def _begin(self) -> None:
        self._stop_timer()
        if self._writing is None and self._queue:
            self._writing = Context().run(asyncio.ensure_future, self._write())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self) -> None:
        try:
            while self._queue and not self._closed:
                batch, self._queue = self._queue, []
                await self._hand_on(batch)
                if self._pause or len(self._queue) * 2 < self._limit:
                    break  # else a turn that goes on would be a write for each of its calls
        finally:
            self._writing = None
        if self._queue:
            self._gather()

    async def _hand_on(self, batch: Sequence[Traced]) -> None:
        problem = ""
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._sink.write(batch)
        except Exception as error:  # a sink may raise anything; its text may hold anything, and is not logged
            problem = type(error).__name__
        if problem:
            self._failed(batch, problem)
        elif self._pause:
            self._pause = 0.0
            _LOG.warning("the trace sink %s works again; it missed %d events", self._name, self._missed)
            self._missed = 0

    def _failed(self, batch: Sequence[Traced], problem: str) -> None:
        begins = not self._pause
        self._pause = _FIRST_PAUSE_SECONDS if begins else min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._until = asyncio.get_running_loop().time() + self._pause
        for item in batch:
            self._drop(item)
        if begins:
            _LOG.error(
                "the trace sink %s failed with %s; until it works again it is tried after growing pauses, "
                "and what it misses is counted",
                self._name,
                problem,
            )

    async def flush(self, seconds: float, *, closing: bool = False) -> None:
        """Wait until the sink has all, for `seconds` at most; or until it is in a pause, unless this is `closing`."""
        now = asyncio.get_running_loop().time
        until = now() + seconds  # of all that it takes, in however many batches
        while self._queue or self._writing is not None:
            if self._writing is None and self._pause_left() and not closing:
                return
            self._begin()
            if self._writing is None or (await asyncio.wait({self._writing}, timeout=max(0.0, until - now())))[1]:
                return

    async def aclose(self) -> None:
        """Write what is left, for a while, and close the sink."""
        self._report_dropped()
        try:
            await self.flush(_CLOSE_SECONDS, closing=True)
        finally:  # also where this is cancelled: no further write begins
            self._closed = True
            if self._pause:
                _LOG.error(
                    "the trace sink %s still fails as the agent closes; it missed %d events", self._name, self._missed
                )
            await self._close_sink()

    async def _close_sink(self) -> None:
        self._queue.clear()
        self._stop_timer()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing}, timeout=_CLOSE_SECONDS)
        problem = ""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._sink.aclose()
        except Exception as error:  # a sink may raise anything; the agent closes all the same
            problem = type(error).__name__
        if problem:
            _LOG.error("the trace sink %s failed with %s as it was closed", self._name, problem)


__all__ = ["Captured", "Dropped", "SinkQueue", "TraceSink", "Traced"]
