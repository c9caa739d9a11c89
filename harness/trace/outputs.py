"""Traces in a file of JSON lines, and as OpenTelemetry spans with the embedder's tracer provider.

Only `opentelemetry-api` is used; without a provider, no spans are recorded. They follow the GenAI conventions, and have
the times of events, not of writes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import MissingExtra, TraceInvalid
from ...core.files import packaged_table, storage_errors
from .recorder import Recorder
from .records import FORMAT, HEADER, Traced, TraceRecord, read_record

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

_REMEMBERED: Final = 1000  # ended turns whose trace is continued if the turn is resumed


class OpenTelemetryTrace:
    """Makes a span of each turn, task, call and model call; approvals, retries and errors are events of these spans.

    Args:
        provider: The tracer provider; None uses the global one of the process.
        agent: The `gen_ai.agent.name` of a turn; None uses its workspace.

    Raises:
        MissingExtra: `opentelemetry-api` is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None, *, agent: str | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            trace = None  # type: ignore[assignment]  # raised below, outside of the handler
        if trace is None:
            raise MissingExtra(
                "spans need OpenTelemetry, and the extra 'otel' is not installed",
                remedy="pip install 'worldagent[otel]'",
            )
        self._tracer: Tracer = trace.get_tracer("worldagent", tracer_provider=provider)
        self._agent = agent
        self._table = packaged_table(__package__, "spans.toml")
        self._recorder = Recorder()
        self._open: dict[tuple[str, str], Span] = {}
        self._ended: OrderedDict[str, SpanContext] = OrderedDict()

    async def write(self, items: Sequence[Traced]) -> None:
        """Begin and end spans."""
        for item in items:  # one by one, because a batch would merge a begin and an end into one record
            for record in self._recorder.records([item]):
                self._record(record)

    async def aclose(self) -> None:
        """End what is still open; the provider is the embedder's to close."""
        for span in reversed(self._open.values()):
            span.end()
        self._open.clear()

    def _record(self, record: TraceRecord) -> None:
        span = self._open.get((record.turn, record.id))
        if record.lasts:
            if span is None:
                span = self._open[record.turn, record.id] = self._begun(record)
            if record.end is not None:
                self._end(span, record)
                del self._open[record.turn, record.id]
                self._remember(record, span)
        elif record.kind == "model":
            self._end(self._begun(record), record)
        else:
            self._event(record)

    def _begun(self, record: TraceRecord) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        parent = self._parent(record)
        return self._tracer.start_span(
            self._name(record),
            context=None if parent is None else set_span_in_context(parent),
            kind=SpanKind.CLIENT if record.kind == "model" else SpanKind.INTERNAL,
            attributes=self._attributes(record),
            start_time=_nanoseconds(record.start),
        )

    def _parent(self, record: TraceRecord) -> Span | None:
        """Return the span of a record's parent, or the closest open one above it; of a resumed turn, its first run."""
        from opentelemetry.trace import NonRecordingSpan

        if record.kind == "turn":
            before = self._ended.get(record.turn)
            return None if before is None else NonRecordingSpan(before)
        path = record.call or record.parent
        while path:
            span = self._open.get((record.turn, path))
            if span is not None:
                return span
            path = path.rpartition("/")[0]
        return self._open.get((record.turn, record.turn))

    def _remember(self, record: TraceRecord, span: Span) -> None:
        if record.kind == "turn":
            self._ended.setdefault(record.turn, span.get_span_context())
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _end(self, span: Span, record: TraceRecord) -> None:
        from opentelemetry.trace import Status, StatusCode

        assert record.end is not None
        ended = {
            "worldagent.status": record.status,
            "gen_ai.usage.input_tokens": record.input_tokens if record.kind == "model" else None,
            "gen_ai.usage.output_tokens": record.output_tokens if record.kind == "model" else None,
            "worldagent.cost": record.cost,
            "worldagent.withheld": record.withheld or None,
            "error.type": record.code or None,
            "gen_ai.tool.call.arguments": _json(record.inputs),
            "gen_ai.tool.call.result": _json(record.outputs),
            "gen_ai.input.messages": _json(record.prompt),
        }
        span.set_attributes({name: value for name, value in ended.items() if value is not None})
        if record.status == "failed":
            span.set_status(Status(StatusCode.ERROR, record.code or None))
        span.end(end_time=_nanoseconds(record.end))

    def _event(self, record: TraceRecord) -> None:
        span = self._parent(record)
        if span is None:
            return
        about = {name: getattr(record, field) for name, field in self._table["event"].items()}
        span.add_event(
            f"worldagent.{record.kind}",
            {name: value for name, value in about.items() if value},
            timestamp=_nanoseconds(record.start),
        )

    def _name(self, record: TraceRecord) -> str:
        what = record.model if record.kind == "model" else self._agent_name(record) or record.name
        return f"{self._table['operations'][record.kind]} {what}".rstrip()

    def _agent_name(self, record: TraceRecord) -> str:
        if record.kind == "turn":
            return self._agent or record.workspace
        return record.label or record.name if record.kind == "task" else ""

    def _attributes(self, record: TraceRecord) -> dict[str, Any]:
        found = {
            "gen_ai.operation.name": self._table["operations"][record.kind],
            "gen_ai.agent.name": self._agent_name(record),
            "gen_ai.tool.type": "function" if record.kind == "call" else "",
            "worldagent.turn.id": record.turn,
            "worldagent.id": record.id,
            **{name: getattr(record, field) for name, field in self._table["attributes"][record.kind].items()},
        }
        return {name: value for name, value in found.items() if value not in (None, "", ())}


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


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
        problem = f"the trace file {str(self.file)!r} cannot be written"
        with storage_errors(problem, remedy="check the disk and the permissions of the file"):
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
