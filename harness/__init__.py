"""Functions and workers, and the one call that runs them. No model and no role in here."""

from ._call import CallContext, OnError, call, call_alone, guarded
from ._function import Function, check_name, flow, tool
from ._registry import Registry
from ._worker import Worker

__all__ = [
    "CallContext",
    "Function",
    "OnError",
    "Registry",
    "Worker",
    "call",
    "call_alone",
    "check_name",
    "flow",
    "guarded",
    "tool",
]
