"""Traces: what turns and calls did, when, who allowed it, and what it cost, recorded from the stream of events (H5).

A trace has no text of a model, a role or a conversation unless capture is on. No turn waits for a trace or reads one.
"""

from .index import Traces
from .outputs import JsonLinesTrace, OpenTelemetryTrace, read_trace
from .records import Captured, Dropped, Flow, Traced, TraceRecord, TraceSink, TurnTrace, ValueSource
from .tracer import Trace

__all__ = [
    "Captured",
    "Dropped",
    "Flow",
    "JsonLinesTrace",
    "OpenTelemetryTrace",
    "Trace",
    "TraceRecord",
    "TraceSink",
    "Traced",
    "Traces",
    "TurnTrace",
    "ValueSource",
    "read_trace",
]
