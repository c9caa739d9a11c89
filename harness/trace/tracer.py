"""The embedder's options for traces, and the tracer that passes events to the sinks.

A turn never waits for a sink, and a sink cannot fail it: each sink has its own queue. A full queue takes only the
begins and ends of turns, and the number of dropped events is reported in their place.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from ...core import CaptureKind, Scope
from ...core import events as ev
from ...core.errors import InvalidArgument, StorageUnavailable, TraceInvalid
from ...core.events import Event
from .index import TraceIndex, Traces
from .recorder import Recorder
from .records import FORMAT, HEADER, TraceRecord, read_record
from .sinks import Captured, SinkQueue, Traced, TraceSink

_LONGEST_HEADER: Final = 100  # bytes; JSON that is nested too deep for Python's parser is longer


class JsonLinesTrace:
    """Appends records of `trace/1` to a file, which is created with mode 0600. Several processes can share one file.

    Args:
        file: The file. It grows without limit; a program that rotates it can move it at any time.
    """

    def __init__(self, file: Path | str) -> None:
        self.file = Path(file)
        self._recorder = Recorder()

    async def write(self, items: Sequence[Traced]) -> None:
        """Append the records of the items."""
        records = self._recorder.records(items)
        if records:
            data = "".join(f"{record.line()}\n" for record in records).encode()
            await asyncio.to_thread(self._add, data)

    async def aclose(self) -> None:
        """Do nothing: no file is open between two writes."""

    def _add(self, data: bytes) -> None:
        problem = ""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size == 0:
                    data = f"{HEADER}\n".encode() + data
                elif os.pread(handle, 1, size - 1) != b"\n":  # a killed process left half a line
                    data = b"\n" + data
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the trace file {str(self.file)!r} cannot be written ({problem})",
                remedy="check the disk and the permissions of the file",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """The content of a file of traces.

    Attributes:
        records: The records in the order of their lines; of a record that was written twice, the last version.
        skipped: The numbers of lines that are not records, such as a line that a killed process did not finish.
    """

    records: tuple[TraceRecord, ...]
    skipped: tuple[int, ...] = ()


def read_trace(file: Path | str) -> TraceFile:
    """Read a file of traces.

    Args:
        file: A file that `JsonLinesTrace` or `worldagent trace export` wrote.

    Raises:
        TraceInvalid: The file cannot be read, or has another format.
    """
    problem = ""
    try:
        lines = Path(file).read_bytes().split(b"\n")
    except OSError as error:
        problem, lines = error.strerror or type(error).__name__, []
    if not problem and not _is_header(lines[0]):
        problem = f"its first line is not that of {FORMAT!r}"
    if problem:
        raise TraceInvalid(
            f"{str(file)!r} cannot be read as a trace: {problem}", remedy="pass a file that JsonLinesTrace wrote"
        )
    found: dict[object, TraceRecord] = {}
    skipped: list[int] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            record = read_record(line) if line and not _is_header(line) else None
        except TraceInvalid:
            skipped.append(number)
            continue
        if record is not None:
            found[(record.turn, record.key)] = record
    return TraceFile(records=tuple(found.values()), skipped=tuple(skipped))


def _is_header(line: bytes) -> bool:
    if len(line) > _LONGEST_HEADER:
        return False
    try:
        return bool(json.loads(line) == json.loads(HEADER))
    except ValueError:
        return False


LIMIT: Final = 10_000
_FLUSH_SECONDS: Final = 60.0
_TEXT_EVENTS: Final = frozenset({ev.TextDelta, ev.TextReplaced, ev.ReasoningDelta, ev.CallProgress})
_TEXT_FIELDS: Final[Mapping[type, Mapping[str, Any]]] = {
    ev.CallStarted: {"arguments": None},  # captured separately, if capture is on
    ev.TaskStarted: {"arguments": None},
    ev.TurnEnded: {"text": ""},
    ev.AnswerChecked: {"findings": ""},
    ev.PlanRejected: {"reason": ""},
    ev.PauseOpened: {"arguments": {}, "question": None, "options": None, "answer_schema": None, "reason": ""},
}
"""The values that replace texts in events before they are traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Where an agent's traces go, and what they capture.

    Attributes:
        sinks: The sinks that receive the traces.
        capture: `inputs` and `outputs` are those of functions with `capture=True`; `prompts` are those of every model
            call, with `[role: N characters]` in the role's place. Only what is named here is captured.
        home: Whether the home keeps the traces; None follows the setting `trace`.
        limit: How many events can wait for each sink. Further events are dropped, and the trace counts them.

    Raises:
        InvalidArgument: An item is not a sink, a name in `capture` is unknown, or `limit` is not 1 or more.
    """

    sinks: tuple[TraceSink, ...] = ()
    capture: Collection[CaptureKind] = ()
    home: bool | None = None
    limit: int = LIMIT

    def __post_init__(self) -> None:
        for sink in self.sinks:
            if not isinstance(sink, TraceSink):
                raise InvalidArgument(
                    f"a {type(sink).__name__} is not a trace sink", remedy="define async `write(items)` and `aclose()`"
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


class Tracer:
    """Passes the events of one agent to its sinks, for as long as the agent is open.

    Args:
        sinks: The sinks that receive the traces.
        index: The index of the home, for looking up traces; it need not be one of the sinks.
        capture: What is captured in addition to events, of functions that allow it.
        limit: How many events can wait for each sink.
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
        """Make the tap for the events of one turn.

        Args:
            scope: The ids it runs under.
        """
        return Tap(self, scope)

    def put(self, item: Traced) -> None:
        """Pass one item to all sinks; never waits and never raises."""
        for queue in self._queues:
            queue.put(item)

    @property
    def on(self) -> bool:
        """Whether there is a sink."""
        return bool(self._queues)

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


class Tap:
    """Passes a turn's events to the tracer on their way to the turn's reader; see `core.Emitter`."""

    __slots__ = ("_scope", "_tracer")

    def __init__(self, tracer: Tracer, scope: Scope) -> None:
        self._tracer, self._scope = tracer, scope

    def over(self, sink: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a sink of events that passes them to `sink` and to the trace."""
        if not self._tracer.on:
            return sink

        def both(event: Event) -> None:
            sink(event)
            self(event)

        return both

    def __call__(self, event: Event) -> None:
        """Trace one event without the texts that it has for readers."""
        kind = type(event)
        if kind in _TEXT_EVENTS:
            return
        if isinstance(event, ev.TurnStarted):
            self._scope = replace(self._scope, thread=event.thread or None)
        texts = _TEXT_FIELDS.get(kind)
        if texts is not None and not texts.items() <= vars(event).items():  # otherwise it has no such text
            event = event.model_copy(update=texts)
        self._tracer.put(Traced(self._scope, event))

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        return what in self._tracer.capture and self._tracer.on

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Trace a captured value."""
        self._tracer.put(Traced(self._scope, Captured(turn_id, call_id, what, value)))
