"""Hands what happens in turns to the sinks. A turn never waits for one, and none can fail it.

Each sink has a queue of its own and a task that empties it. A queue that is full takes the ends of turns alone, and
what it did not take is told in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ...core import Scope
from ...core.events import (
    AnswerChecked,
    CallEnded,
    CallProgress,
    CallStarted,
    Event,
    PauseOpened,
    PlanRejected,
    ReasoningDelta,
    TaskStarted,
    TextDelta,
    TextReplaced,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ._index import TraceIndex, Traces
from ._items import Captured, CaptureKind, Dropped, Traced, TraceSink

LIMIT: Final = 10_000
_LINGER: Final = 0.1  # seconds that what happens is gathered, so that a turn is few writes
_STUCK: Final = 60.0  # seconds that one write may take
_LEAVE: Final = 5.0  # seconds that closing waits for a sink
_PAUSE: Final = 1.0  # seconds until a sink that failed is tried again; doubles with each further failure
_LONGEST_PAUSE: Final = 60.0

_LOG = logging.getLogger("worldagent.traces")


class Tracer:
    """The traces of one agent, for as long as it is open.

    Args:
        sinks: Who gets them.
        index: Where the home's are looked up, whether it gets them or not.
        capture: What is captured beside events, of functions that allow it.
        limit: How many events may wait for each sink.
    """

    def __init__(
        self,
        sinks: Collection[TraceSink] = (),
        *,
        index: TraceIndex | None = None,
        capture: Collection[CaptureKind] = (),
        limit: int = LIMIT,
    ) -> None:
        self._index = index
        self._lanes = tuple(_Lane(sink, limit) for sink in sinks)
        self.capture = frozenset(capture)

    def tap(self, scope: Scope) -> Tap:
        """Where one turn's events go.

        Args:
            scope: The ids it runs under.
        """
        return Tap(self, scope)

    def put(self, item: Traced) -> None:
        """Hand one thing on; it never waits and never raises."""
        for lane in self._lanes:
            lane.put(item)

    @property
    def on(self) -> bool:
        """Whether anybody wants to know."""
        return bool(self._lanes)

    def traces(self, workspace: str) -> Traces:
        """What the home keeps of a workspace, with all that happened so far."""
        assert self._index is not None, "an agent's tracer has the home's index"
        return Traces(self._index, workspace, flush=self.flush)

    async def flush(self) -> None:
        """Wait until the sinks have what happened so far, or have shown that they do not take it."""
        for lane in self._lanes:
            await lane.flush(_STUCK)

    async def aclose(self) -> None:
        """Hand on what is left, and close the sinks. What does not come to an end is cut off."""
        async with AsyncExitStack() as closing:  # each of them, also where the wait for another one is cut off
            if self._index is not None:
                closing.push_async_callback(self._index.aclose)
            for lane in reversed(self._lanes):
                closing.push_async_callback(lane.aclose)


class Tap:
    """Where one turn's events go on their way to its reader; see `core.Emitter`."""

    __slots__ = ("_scope", "_tracer")

    def __init__(self, tracer: Tracer, scope: Scope) -> None:
        self._tracer, self._scope = tracer, scope

    def over(self, sink: Callable[[Event], None]) -> Callable[[Event], None]:
        """A sink of events that hands them to `sink` and to the trace."""
        if not self._tracer.on:
            return sink

        def both(event: Event) -> None:
            sink(event)
            self(event)

        return both

    def __call__(self, event: Event) -> None:
        """Take one event; the texts that it has for readers stay behind."""
        match event:
            case CallStarted() | TaskStarted() if event.arguments is not None:  # captured apart, where that is wanted
                event = event.model_copy(update={"arguments": None})
            case CallStarted() | CallEnded() | Usage():  # most are
                pass
            case TextDelta() | TextReplaced() | ReasoningDelta() | CallProgress():
                return
            case TurnStarted():
                self._scope = replace(self._scope, thread=event.thread or None)
            case TurnEnded() if event.text:
                event = event.model_copy(update={"text": ""})
            case AnswerChecked():
                event = event.model_copy(update={"findings": ""})
            case PlanRejected():
                event = event.model_copy(update={"reason": ""})
            case PauseOpened():
                hidden: dict[str, Any] = {
                    "arguments": {},
                    "question": None,
                    "options": None,
                    "answer_schema": None,
                    "reason": "",
                }
                event = event.model_copy(update=hidden)
            case _:
                pass
        self._tracer.put(Traced(self._scope, event))

    def wants(self, what: CaptureKind) -> bool:
        """Whether such a thing is captured."""
        return what in self._tracer.capture and self._tracer.on

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Take what is captured."""
        self._tracer.put(Traced(self._scope, Captured(turn_id, call_id, what, value)))


class _Lane:
    """One sink, its queue and the task that empties it; while nothing waits there is no task.

    A write that failed is not repeated: the sink may have taken part of it. Its events count as dropped, and the next
    write follows after a pause. So memory holds at most what happens in one pause, within `limit`.
    """

    def __init__(self, sink: TraceSink, limit: int) -> None:
        self._sink = sink
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
        if self._closed:
            return
        what = item.what
        if self._dropped and len(self._queue) < self._limit:
            self._tell()
        if len(self._queue) >= self._limit and not isinstance(what, TurnStarted | TurnEnded):
            self._drop(item)
            return
        if isinstance(what, TurnEnded) and what.turn_id in self._dropped:
            self._tell(what.turn_id)
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
            wait = max(_LINGER, self._pause_left())
            # In an empty context: this one may hold what belongs to the turn.
            self._timer = asyncio.get_running_loop().call_later(wait, self._begin, context=Context())

    def _pause_left(self) -> float:
        """Return how many seconds the sink is not tried, after it failed."""
        return max(0.0, self._until - asyncio.get_running_loop().time()) if self._pause else 0.0

    def _tell(self, turn_id: str | None = None) -> None:
        """Put how much was dropped in its place: of one turn, or of all."""
        for each in list(self._dropped) if turn_id is None else [turn_id]:
            scope, count, at = self._dropped.pop(each)
            self._queue.append(Traced(scope, Dropped(each, count, at)))

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and self._queue:
            self._writing = Context().run(asyncio.ensure_future, self._write())

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
            async with asyncio.timeout(_STUCK):
                await self._sink.write(batch)
        except Exception as error:  # whatever a sink raises is its own matter; its words may hold anything
            problem = type(error).__name__
        if problem:
            self._failed(batch, problem)
        elif self._pause:
            self._pause = 0.0
            _LOG.warning("the trace sink %s works again; it missed %d events", self._name, self._missed)
            self._missed = 0

    def _failed(self, batch: Sequence[Traced], problem: str) -> None:
        begins = not self._pause
        self._pause = _PAUSE if begins else min(2 * self._pause, _LONGEST_PAUSE)
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

    @property
    def _name(self) -> str:
        return type(self._sink).__name__

    async def flush(self, seconds: float, *, closing: bool = False) -> None:
        now = asyncio.get_running_loop().time
        until = now() + seconds  # of all that it takes, in however many batches
        while self._queue or self._writing is not None:
            if self._writing is None and self._pause_left() and not closing:
                return
            self._begin()
            if self._writing is None or (await asyncio.wait({self._writing}, timeout=max(0.0, until - now())))[1]:
                return

    async def aclose(self) -> None:
        self._tell()
        try:
            await self.flush(_LEAVE, closing=True)
        finally:  # cut off, too: nothing more is begun
            self._closed = True
            if self._pause:
                _LOG.error(
                    "the trace sink %s still fails as the agent closes; it missed %d events", self._name, self._missed
                )
            await self._end()

    async def _end(self) -> None:
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        writing = self._writing
        if writing is not None:
            writing.cancel()
            await asyncio.wait({writing}, timeout=_LEAVE)
        problem = ""
        try:
            async with asyncio.timeout(_LEAVE):
                await self._sink.aclose()
        except Exception as error:  # whatever a sink raises is its own matter; the agent closes all the same
            problem = type(error).__name__
        if problem:
            _LOG.error("the trace sink %s failed with %s as it was closed", self._name, problem)


__all__ = ["LIMIT", "Tap", "Tracer"]
