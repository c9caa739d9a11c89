"""Trace sinks: the items that they receive, and the queue of each sink.

A sink receives the events of every turn, with their ids. They contain no text of a model or a person unless capture is
on, and never a role.
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

_GATHER_SECONDS: Final = 0.1  # of waiting before a write, so that a turn takes few writes
_WRITE_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 1.0  # until a sink that failed is tried again; doubles with each further failure
_LONGEST_PAUSE_SECONDS: Final = 60.0

_LOG = logging.getLogger("worldagent.traces")


@dataclass(frozen=True, slots=True)
class Captured:
    """The params or the result of a call, or the prompt of a model call; only if capture is on.

    Attributes:
        turn_id: The turn's id.
        call_id: The path id of the call or task; of a prompt, of the call, task or turn that made the model call.
        what: The kind of the value.
        value: Params or result as JSON; the messages of a prompt, with `[role: N characters]` in the role's place.
    """

    turn_id: str
    call_id: str
    what: CaptureKind
    value: Any


@dataclass(frozen=True, slots=True)
class Dropped:
    """Events of a turn that a sink did not receive, because it was too slow or failed.

    Attributes:
        turn_id: The turn's id.
        count: How many events.
        at: When the last one was dropped.
    """

    turn_id: str
    count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Traced:
    """One item of a turn's trace, or of the trace of a call without a turn.

    Attributes:
        scope: The ids that the turn runs under.
        what: An event without the texts that it has for readers, a captured value, or a count of dropped events.
    """

    scope: Scope
    what: Event | Captured | Dropped


@runtime_checkable
class TraceSink(Protocol):
    """Receives the items of traces, such as to write them to a file. Implement it to send traces where you want them.

    One task at a time calls the sink, and no turn waits for it. A write that raises, or takes longer than a minute, is
    not repeated; its events count as dropped. The sink is tried again after pauses that grow from a second to a minute.
    """

    async def write(self, items: Sequence[Traced]) -> None:
        """Write the items of all turns since the last call, in order."""
        ...

    async def aclose(self) -> None:
        """Close files and connections. Another `write` can follow if the agent is started again."""
        ...


class SinkQueue:
    """One sink, its queue and the task that writes the queue; there is no task while the queue is empty.

    A write that failed is not repeated, because the sink may have taken part of it. Its events count as dropped, and
    the next write follows after a pause. So memory holds at most the items of one pause, within `limit`.
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
        """Add one item to the queue; never waits and never raises."""
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
        """Count one item that the sink does not receive, for its turn and for the outage."""
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
        if len(self._dropped) > self._limit:  # an outage of many turns: only the log counts the oldest
            del self._dropped[next(iter(self._dropped))]

    def _gather(self) -> None:
        """Schedule a write of the queue, so that items which arrive until then are written as well."""
        if self._timer is None and self._writing is None:
            wait = max(_GATHER_SECONDS, self._pause_left())
            # In an empty context, because the current one may belong to a turn.
            self._timer = asyncio.get_running_loop().call_later(wait, self._begin, context=Context())

    def _pause_left(self) -> float:
        """Return for how many more seconds the sink is not tried after a failure."""
        return max(0.0, self._until - asyncio.get_running_loop().time()) if self._pause else 0.0

    def _report_dropped(self, turn_id: str | None = None) -> None:
        """Add the counts of dropped events to the queue, for one turn or for all."""
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
                    break  # otherwise a running turn would cause a write for each of its calls
        finally:
            self._writing = None
        if self._queue:
            self._gather()

    async def _hand_on(self, batch: Sequence[Traced]) -> None:
        problem = ""
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._sink.write(batch)
        except Exception as error:  # broad: a sink can raise anything; its message may be secret and is not logged
            problem = type(error).__name__
        if problem:
            self._failed(batch, problem)
        elif self._pause:
            self._pause = 0.0
            _LOG.warning("the trace sink %s is working again; it missed %d events", self._name, self._missed)
            self._missed = 0

    def _failed(self, batch: Sequence[Traced], problem: str) -> None:
        begins = not self._pause
        self._pause = _FIRST_PAUSE_SECONDS if begins else min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._until = asyncio.get_running_loop().time() + self._pause
        for item in batch:
            self._drop(item)
        if begins:
            _LOG.error(
                "the trace sink %s failed with %s; it will be tried again after growing pauses, "
                "and the events that it misses are counted",
                self._name,
                problem,
            )

    async def flush(self, seconds: float, *, closing: bool = False) -> None:
        """Wait until the queue is written, for at most `seconds`; return during a pause unless this is `closing`."""
        now = asyncio.get_running_loop().time
        until = now() + seconds  # for all batches
        while self._queue or self._writing is not None:
            if self._writing is None and self._pause_left() and not closing:
                return
            self._begin()
            if self._writing is None or (await asyncio.wait({self._writing}, timeout=max(0.0, until - now())))[1]:
                return

    async def aclose(self) -> None:
        """Write what remains within a time limit, and close the sink."""
        self._report_dropped()
        try:
            await self.flush(_CLOSE_SECONDS, closing=True)
        finally:  # even if this is cancelled, no further write must begin
            self._closed = True
            if self._pause:
                _LOG.error(
                    "the trace sink %s still fails while the agent closes; it missed %d events",
                    self._name,
                    self._missed,
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
        except Exception as error:  # broad: a sink can raise anything, and the agent must still close
            problem = type(error).__name__
        if problem:
            _LOG.error("the trace sink %s failed with %s while it was closed", self._name, problem)


__all__ = ["Captured", "Dropped", "SinkQueue", "TraceSink", "Traced"]
