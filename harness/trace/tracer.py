"""The embedder's options for traces, and the tracer that passes events to the sinks.

A turn never waits for a sink, and a sink cannot fail it: each sink has its own queue. A full queue takes only the
begins and ends of turns, and the number of dropped events is reported in their place.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, get_args

from ...core import CaptureKind, Scope
from ...core import events as ev
from ...core.errors import InvalidArgument
from ...core.events import TurnEnded, TurnEvent, TurnStarted
from ..gate.labels import by_part, told
from .index import TraceIndex, Traces
from .outputs import JsonLinesTrace
from .records import Captured, Dropped, Traced, TraceSink

LIMIT: Final = 10_000
_FLUSH_SECONDS: Final = 60.0
_TEXT_EVENTS: Final = (ev.UnnumberedEvent, ev.TextDelta, ev.TextReplaced, ev.CallProgress)
_TEXT_FIELDS: Final[Mapping[type, Mapping[str, Any]]] = {
    ev.CallStarted: {"arguments": None},  # captured separately, if capture is on
    ev.TaskStarted: {"arguments": None},
    ev.TurnEnded: {"text": "", "outputs": {}, "labels": {}},
    ev.AnswerChecked: {"findings": ""},
    ev.PlanRejected: {"reason": ""},
    ev.PauseOpened: {
        "arguments": {},
        "labels": {},
        "question": None,
        "options": None,
        "answer_schema": None,
        "reason": "",
    },
}
"""The values that replace texts in events before they are traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Where an agent's traces go, and what they capture.

    Attributes:
        sinks: The sinks that receive the traces.
        capture: `inputs` and `outputs` are those of functions with `capture=True`, and `inputs` also what messages
            between members say; `prompts` are those of every model call, with `[role: N characters]` in the role's
            place. Only what is named here is captured.
        home: Whether the home keeps the traces; None follows the setting `trace`.
        limit: How many events can wait for each sink. Further events are dropped, and the trace counts them.
        callbacks: Callbacks of LangChain, which see the runs of the turns' graphs, and of dspy, which see the calls of
            predictors and modules, with texts and without roles. No other callbacks are called.

    Raises:
        InvalidArgument: An item is not a sink or not a callback, a name in `capture` is unknown, or `limit` is not 1 or
            more.
    """

    sinks: tuple[TraceSink, ...] = ()
    capture: Collection[CaptureKind] = ()
    home: bool | None = None
    limit: int = LIMIT
    callbacks: Collection[object] = ()

    def __post_init__(self) -> None:
        for sink in self.sinks:
            if not isinstance(sink, TraceSink):
                raise InvalidArgument(
                    f"a {type(sink).__name__} is not a trace sink", remedy="define async `write(items)` and `aclose()`"
                )
        for callback in self.callbacks:
            if not _is_callback(callback):
                raise InvalidArgument(
                    f"a {type(callback).__name__} in `callbacks` is not a callback",
                    remedy="pass instances of langchain_core's BaseCallbackHandler or dspy's BaseCallback",
                )
        known = get_args(CaptureKind)
        unknown = [what for what in self.capture if what not in known]
        if unknown or isinstance(self.capture, str):
            raise InvalidArgument(
                f"`capture` must be a list of known names, got {self.capture!r}",
                remedy=f"pass some of {', '.join(known)}",
            )
        if isinstance(self.limit, bool) or self.limit < 1:
            raise InvalidArgument(
                f"`limit` must be an integer of 1 or more, got {self.limit!r}",
                remedy="pass the number of events that can wait",
            )

    def tracer(self, index: TraceIndex, *, on: bool) -> Tracer:
        """Make the tracer of an agent.

        Args:
            index: The index of the home.
            on: Whether the index receives traces if `home` is None.
        """
        own = (index,) if (on if self.home is None else self.home) else ()
        return Tracer((*own, *self.sinks), index=index, capture=self.capture, limit=self.limit)

    @staticmethod
    def to(*places: TraceSink | Path | str, capture: Collection[CaptureKind] = (), home: bool | None = None) -> Trace:
        """Make a `Trace` that writes to sinks, or to files as JSON Lines.

        Args:
            places: The sinks, and the paths of files.
            capture: See `Trace`.
            home: See `Trace`.

        Raises:
            InvalidArgument: See `Trace`.
        """
        sinks = tuple(JsonLinesTrace(place) if isinstance(place, str | Path) else place for place in places)
        return Trace(sinks=sinks, capture=capture, home=home)

    @staticmethod
    def of(given: Trace | TraceSink | Sequence[TraceSink] | None) -> Trace:
        """Make a `Trace` of the argument of `WorldAgent(trace=...)`.

        Raises:
            InvalidArgument: It is not a `Trace`, a sink or a list of sinks.
        """
        match given:
            case None:
                return Trace()
            case Trace():
                return given
            case TraceSink():
                return Trace(sinks=(given,))
            case list() | tuple():
                return Trace(sinks=tuple(given))
            case _:
                raise InvalidArgument(
                    f"trace= must be a Trace, a sink or a list of sinks, got {type(given).__name__!r}",
                    remedy="pass one of these, or omit trace=",
                )


def _is_callback(given: object) -> bool:
    """Whether it is a callback of a library, which is loaded then."""
    kinds = (("langchain_core.callbacks", "BaseCallbackHandler"), ("dspy.utils.callback", "BaseCallback"))
    known = [getattr(sys.modules.get(library), name, None) for library, name in kinds]
    return any(kind is not None and isinstance(given, kind) for kind in known)


class Tracer:
    """Passes the events of one agent to its sinks, for as long as the agent is open.

    Args:
        sinks: The sinks that receive the traces.
        index: The index of the home, for looking up traces; it need not be one of the sinks.
        capture: What is captured in addition to events, of functions that allow it.
        limit: How many events can wait for each sink.

    Attributes:
        on: Whether there is a sink.
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
        self._queues = tuple(SinkQueue(sink, limit) for sink in sinks)
        self.on = bool(sinks)
        self.capture = frozenset(capture)

    def tap(self, scope: Scope) -> Tap:
        """Make the tap for the events of one turn.

        Args:
            scope: The ids it runs under.
        """
        return Tap(self, scope)

    def put(self, item: Traced) -> None:
        """Pass one item to all sinks; never waits and never raises."""
        for queue in self._queues:
            queue.put(item)

    def traces(self, workspace: str) -> Traces:
        """Return the traces that the home keeps of a workspace, including everything that happened so far."""
        assert self._index is not None, "an agent's tracer has the home's index"
        return Traces(self._index, workspace, flush=self.flush)

    async def flush(self) -> None:
        """Wait until each sink has everything that happened so far, or has failed."""
        for queue in self._queues:
            await queue.flush(_FLUSH_SECONDS)

    async def aclose(self) -> None:
        """Write what remains, and close the sinks. A sink that does not finish within the time limit is cancelled."""
        async with AsyncExitStack() as closing:  # closes every sink, even if waiting for another one is cancelled
            if self._index is not None:
                closing.push_async_callback(self._index.aclose)
            for queue in reversed(self._queues):
                closing.push_async_callback(queue.aclose)


def without_texts(event: TurnEvent) -> TurnEvent:
    """An event without the texts that it has for readers; of the labels of an answer, those of its parts are left."""
    texts = _TEXT_FIELDS.get(type(event), {})
    if isinstance(event, ev.TurnEnded) and event.labels:
        texts = {**texts, "labels": told(by_part(event.labels))}
    return event.model_copy(update=texts)


class Tap:
    """Passes a turn's events to the tracer on their way to the turn's reader; see `core.Emitter`."""

    __slots__ = ("_scope", "_tracer")

    def __init__(self, tracer: Tracer, scope: Scope) -> None:
        self._tracer, self._scope = tracer, scope

    def __call__(self, event: TurnEvent) -> None:
        """Trace one event without the texts that it has for readers."""
        kind = type(event)
        if kind in _TEXT_EVENTS or not self._tracer.on:
            return
        if isinstance(event, ev.TurnStarted):
            self._scope = replace(self._scope, thread=event.thread or None)
        texts = _TEXT_FIELDS.get(kind)
        if texts is not None and not texts.items() <= vars(event).items():  # otherwise it has no such text
            event = without_texts(event)
        self._tracer.put(Traced(self._scope, event))

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        return what in self._tracer.capture and self._tracer.on

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Trace a captured value."""
        self._tracer.put(Traced(self._scope, Captured(turn_id, call_id, what, value)))


_GATHER_SECONDS: Final = 0.1  # of waiting before a write, so that a turn takes few writes


_WRITE_SECONDS: Final = 60.0


_CLOSE_SECONDS: Final = 5.0


_FIRST_PAUSE_SECONDS: Final = 1.0  # until a sink that failed is tried again; doubles with each further failure


_LONGEST_PAUSE_SECONDS: Final = 60.0


_LOG = logging.getLogger("worldagent.traces")


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
