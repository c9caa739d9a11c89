"""Traces: what turns and calls did, when, why they might, and what it cost; wrappers on the one stream of events (H5).

No model, no role and no conversation in here. Nobody waits for a trace: what decides and what runs never reads one.
"""

from .index import Traces
from .lines import JsonLinesTrace, read_trace
from .otel import OpenTelemetryTrace
from .records import TraceRecord
from .sinks import Captured, Dropped, Traced, TraceSink
from .tracer import Trace
from .tree import TurnTrace

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
