"""Traces: what turns and calls did, when, who allowed it, and what it cost, recorded from the stream of events (H5).

A trace has no text of a model, a role or a conversation unless capture is on. No turn waits for a trace or reads one.
"""

from .index import Traces
from .otel import OpenTelemetryTrace
from .records import TraceRecord, TurnTrace
from .sinks import Captured, Dropped, Traced, TraceSink
from .tracer import JsonLinesTrace, Trace, read_trace

__all__ = [
    "Captured",
    "Dropped",
    "JsonLinesTrace",
    "OpenTelemetryTrace",
    "Trace",
    "TraceRecord",
    "TraceSink",
    "Traced",
    "Traces",
    "TurnTrace",
    "read_trace",
]
