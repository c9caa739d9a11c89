"""Traces as spans of OpenTelemetry, by its library and the embedder's own tracer provider (GenAI conventions).

Only the api is used; without a provider its spans go nowhere. Spans get the times of events, not those of the write.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import MissingExtra
from ._items import Traced
from ._recorder import Recorder
from ._records import TraceRecord

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

_REMEMBERED: Final = 1000  # turns that ended, whose traces a resumed turn goes on in
_OPERATIONS: Final = {"turn": "invoke_agent", "task": "invoke_agent", "call": "execute_tool", "model": "chat"}


class OpenTelemetryTrace:
    """Makes a span of each turn, task, call and model call; approvals, retries and errors are events on them.

    Args:
        provider: The tracer provider; None is the one that the process has set.
        agent: What `gen_ai.agent.name` of a turn is; None is its workspace.

    Raises:
        MissingExtra: `opentelemetry-api` is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None, *, agent: str | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            trace = None  # type: ignore[assignment]  # told below, outside the handler
        if trace is None:
            raise MissingExtra(
                "spans need OpenTelemetry, and the extra 'otel' is not installed",
                remedy="pip install 'worldagent[otel]'",
            )
        self._tracer: Tracer = trace.get_tracer("worldagent", tracer_provider=provider)
        self._agent = agent
        self._recorder = Recorder()
        self._open: dict[tuple[str, str], Span] = {}
        self._ended: OrderedDict[str, SpanContext] = OrderedDict()

    async def write(self, items: Sequence[Traced]) -> None:
        """Begin and end spans."""
        for item in items:  # one by one: what begins and ends in one batch is two records
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
            attributes={name: value for name, value in self._attributes(record) if value not in (None, "", ())},
            start_time=_nanoseconds(record.start),
        )

    def _parent(self, record: TraceRecord) -> Span | None:
        """The span of what a record is part of, or of the nearest above; of a resumed turn that of its first run."""
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
        told: dict[str, Any] = {
            "worldagent.function": record.name,
            "worldagent.call.id": record.call,
            "worldagent.decision": record.status,
            "worldagent.gate": record.gate,
            "worldagent.account": record.account,
            "worldagent.label": record.label,
            "error.type": record.code,
            "worldagent.attempt": record.attempt,
            "worldagent.wait": record.seconds,
            "worldagent.count": record.count,
        }
        span.add_event(
            f"worldagent.{record.kind}",
            {name: value for name, value in told.items() if value},
            timestamp=_nanoseconds(record.start),
        )

    def _name(self, record: TraceRecord) -> str:
        what = record.model if record.kind == "model" else self._agent_name(record) or record.name
        return f"{_OPERATIONS[record.kind]} {what}".rstrip()

    def _agent_name(self, record: TraceRecord) -> str:
        match record.kind:
            case "turn":
                return self._agent or record.workspace
            case "task":
                return record.label or record.name
            case _:
                return ""

    def _attributes(self, record: TraceRecord) -> list[tuple[str, Any]]:
        agent = self._agent_name(record)
        found: list[tuple[str, Any]] = [
            ("gen_ai.operation.name", _OPERATIONS[record.kind]),
            ("gen_ai.agent.name", agent),
            ("worldagent.turn.id", record.turn),
            ("worldagent.id", record.id),
        ]
        match record.kind:
            case "turn":
                found += [("gen_ai.conversation.id", record.thread), ("worldagent.surface", record.name)]
                found += [("worldagent.account", record.account), ("worldagent.role_tiers", record.role_tiers)]
            case "call":
                found += [("gen_ai.tool.name", record.name), ("gen_ai.tool.call.id", record.id)]
                found += [("gen_ai.tool.type", "function"), *_let(record)]
            case "model":
                found += [("gen_ai.request.model", record.model), ("worldagent.signature", record.name)]
            case _:
                found += [("worldagent.shape", record.name), *_let(record)]
        return found


def _let(record: TraceRecord) -> list[tuple[str, Any]]:
    return [("worldagent.gate", record.gate), ("worldagent.risk", record.risk)]


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


__all__ = ["OpenTelemetryTrace"]
