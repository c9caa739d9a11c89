"""For those who collect and show traces: the agent and hosts. An embedder needs none of it."""

from .._index import TRACES, TraceIndex
from .._records import FORMAT, HEADER, KINDS
from .._tracer import Tracer
from .._tree import TraceNode

__all__ = ["FORMAT", "HEADER", "KINDS", "TRACES", "TraceIndex", "TraceNode", "Tracer"]
