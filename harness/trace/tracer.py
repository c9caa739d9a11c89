"""What an agent traces, as its embedder says it, and what hands it to the sinks.

A turn never waits for a sink, and none can fail it: each has a queue of its own. A queue that is full takes the ends of
turns alone, and how many events it did not take is reported in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from ...core import CaptureKind, Scope
from ...core import events as ev
from ...core.errors import InvalidArgument
from ...core.events import Event
from .index import TraceIndex, Traces
from .lines import JsonLinesTrace
from .sinks import Captured, SinkQueue, Traced, TraceSink

LIMIT: Final = 10_000
_FLUSH_SECONDS: Final = 60.0
_TEXTS: Final = frozenset({ev.TextDelta, ev.TextReplaced, ev.ReasoningDelta, ev.CallProgress})
_TEXT_FIELDS: Final[Mapping[type, Mapping[str, Any]]] = {
    ev.CallStarted: {"arguments": None},  # captured apart, where that is wanted
    ev.TaskStarted: {"arguments": None},
    ev.TurnEnded: {"text": ""},
    ev.AnswerChecked: {"findings": ""},
    ev.PlanRejected: {"reason": ""},
    ev.PauseOpened: {"arguments": {}, "question": None, "options": None, "answer_schema": None, "reason": ""},
}
"""What texts in events become before they are traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Where an agent's traces go beside the home, and what is captured in all of them.

    Attributes:
        sinks: Who gets them.
        capture: `inputs` and `outputs` are those of functions with `capture=True`; `prompts` are those of every model
            call, with `[role: N characters]` in the role's place. Nothing is captured unless it is named here.
        home: Whether the home's index gets them; None is what the setting `trace` says.
        limit: How many events may wait for each sink; what is over it is dropped, and the trace says so.

    Raises:
        InvalidArgument: Something is no sink, or there is no such thing to capture.
    """

    sinks: tuple[TraceSink, ...] = ()
    capture: Collection[CaptureKind] = ()
    home: bool | None = None
    limit: int = LIMIT

    def __post_init__(self) -> None:
        for sink in self.sinks:
            if not isinstance(sink, TraceSink):
                raise InvalidArgument(
                    f"a {type(sink).__name__} is no trace sink", remedy="give it async `write(items)` and `aclose()`"
                )
        known = get_args(CaptureKind)
        unknown = [what for what in self.capture if what not in known]
        if unknown or isinstance(self.capture, str):
            raise InvalidArgument(f"capture={self.capture!r} is not known", remedy=f"name some of {', '.join(known)}")
        if isinstance(self.limit, bool) or self.limit < 1:
            raise InvalidArgument(f"limit={self.limit!r} is no number of events", remedy="give 1 or more")

    def tracer(self, index: TraceIndex, *, on: bool) -> Tracer:
        """What hands an agent's traces on.

        Args:
            index: That of the home.
            on: Whether it gets them where this does not say.
        """
        own = (index,) if (on if self.home is None else self.home) else ()
        return Tracer((*own, *self.sinks), index=index, capture=self.capture, limit=self.limit)

    @staticmethod
    def to(*places: TraceSink | Path | str, capture: Collection[CaptureKind] = (), home: bool | None = None) -> Trace:
        """Traces that go to sinks, or to files as JSON Lines.

        Args:
            places: The sinks, and the files by their paths.
            capture: See `Trace`.
            home: See `Trace`.

        Raises:
            InvalidArgument: See `Trace`.
        """
        sinks = tuple(JsonLinesTrace(place) if isinstance(place, str | Path) else place for place in places)
        return Trace(sinks=sinks, capture=capture, home=home)

    @staticmethod
    def of(given: Trace | TraceSink | Sequence[TraceSink] | None) -> Trace:
        """What `WorldAgent(trace=...)` takes as a `Trace`.

        Raises:
            InvalidArgument: It is none of these.
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
                    f"trace= is a {type(given).__name__}", remedy="give a Trace, a sink or a list of sinks"
                )


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
        self._queues = tuple(SinkQueue(sink, limit) for sink in sinks)
        self.capture = frozenset(capture)

    def tap(self, scope: Scope) -> Tap:
        """Where one turn's events go.

        Args:
            scope: The ids it runs under.
        """
        return Tap(self, scope)

    def put(self, item: Traced) -> None:
        """Hand one thing on; it never waits and never raises."""
        for queue in self._queues:
            queue.put(item)

    @property
    def on(self) -> bool:
        """Whether anybody wants to know."""
        return bool(self._queues)

    def traces(self, workspace: str) -> Traces:
        """What the home keeps of a workspace, with all that happened so far."""
        assert self._index is not None, "an agent's tracer has the home's index"
        return Traces(self._index, workspace, flush=self.flush)

    async def flush(self) -> None:
        """Wait until the sinks have what happened so far, or have shown that they do not take it."""
        for queue in self._queues:
            await queue.flush(_FLUSH_SECONDS)

    async def aclose(self) -> None:
        """Hand on what is left, and close the sinks. What does not come to an end is cut off."""
        async with AsyncExitStack() as closing:  # each of them, also where the wait for another one is cut off
            if self._index is not None:
                closing.push_async_callback(self._index.aclose)
            for queue in reversed(self._queues):
                closing.push_async_callback(queue.aclose)


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
        kind = type(event)
        if kind in _TEXTS:
            return
        if isinstance(event, ev.TurnStarted):
            self._scope = replace(self._scope, thread=event.thread or None)
        texts = _TEXT_FIELDS.get(kind)
        if texts is not None and not texts.items() <= vars(event).items():  # otherwise it has none of them
            event = event.model_copy(update=texts)
        self._tracer.put(Traced(self._scope, event))

    def wants(self, what: CaptureKind) -> bool:
        """Whether such a thing is captured."""
        return what in self._tracer.capture and self._tracer.on

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Take what is captured."""
        self._tracer.put(Traced(self._scope, Captured(turn_id, call_id, what, value)))


__all__ = ["LIMIT", "Tap", "Trace", "Tracer"]
