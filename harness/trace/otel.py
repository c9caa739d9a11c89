"""Traces as OpenTelemetry spans, by the GenAI conventions, with the embedder's tracer provider.

Only `opentelemetry-api` is used; without a provider, no spans are recorded. Spans have the times of events, not of
writes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import MissingExtra
from .recorder import Recorder
from .records import TraceRecord
from .sinks import Traced

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

_REMEMBERED: Final = 1000  # ended turns whose trace is continued if the turn is resumed
_GATE: Final = {"worldagent.gate": "gate", "worldagent.risk": "risk"}
_ATTRIBUTES: Final = {
    "turn": {
        "gen_ai.conversation.id": "thread",
        "worldagent.surface": "name",
        "worldagent.account": "account",
        "worldagent.role_tiers": "role_tiers",
    },
    "task": {"worldagent.shape": "name", **_GATE},
    "call": {"gen_ai.tool.name": "name", "gen_ai.tool.call.id": "id", **_GATE},
    "model": {"gen_ai.request.model": "model", "worldagent.signature": "name"},
}
_EVENT_ATTRIBUTES: Final = {
    "worldagent.function": "name",
    "worldagent.call.id": "call",
    "worldagent.decision": "status",
    "worldagent.gate": "gate",
    "worldagent.account": "account",
    "worldagent.label": "label",
    "error.type": "code",
    "worldagent.attempt": "attempt",
    "worldagent.wait": "seconds",
    "worldagent.count": "count",
}
_OPERATIONS: Final = {"turn": "invoke_agent", "task": "invoke_agent", "call": "execute_tool", "model": "chat"}


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
        about = {name: getattr(record, field) for name, field in _EVENT_ATTRIBUTES.items()}
        span.add_event(
            f"worldagent.{record.kind}",
            {name: value for name, value in about.items() if value},
            timestamp=_nanoseconds(record.start),
        )

    def _name(self, record: TraceRecord) -> str:
        what = record.model if record.kind == "model" else self._agent_name(record) or record.name
        return f"{_OPERATIONS[record.kind]} {what}".rstrip()

    def _agent_name(self, record: TraceRecord) -> str:
        if record.kind == "turn":
            return self._agent or record.workspace
        return record.label or record.name if record.kind == "task" else ""

    def _attributes(self, record: TraceRecord) -> dict[str, Any]:
        found = {
            "gen_ai.operation.name": _OPERATIONS[record.kind],
            "gen_ai.agent.name": self._agent_name(record),
            "gen_ai.tool.type": "function" if record.kind == "call" else "",
            "worldagent.turn.id": record.turn,
            "worldagent.id": record.id,
            **{name: getattr(record, field) for name, field in _ATTRIBUTES[record.kind].items()},
        }
        return {name: value for name, value in found.items() if value not in (None, "", ())}


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


__all__ = ["OpenTelemetryTrace"]
