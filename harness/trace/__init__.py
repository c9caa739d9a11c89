"""Traces: what turns and calls did, when, why they might, and what it cost; wrappers on the one stream of events (H5).

No model, no role and no conversation in here. Nobody waits for a trace: what decides and what runs never reads one.
"""

from ._index import Traces
from ._items import Captured, Dropped, Traced, TraceSink
from ._lines import JsonLinesTrace, read_trace
from ._otel import OpenTelemetryTrace
from ._records import TraceRecord
from ._trace import Trace
from ._tree import TurnTrace

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
