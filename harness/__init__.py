"""Functions and workers, and the one call that runs them, behind one gate. No model and no role in here."""

from ..core.generation import GenerationOptions
from ._context import CallContext, ToolContext, WorkerContext
from ._function import CONVERSATION, Function, Risk
from ._pipeline import call
from ._registry import Registry
from ._tool import flow, tool
from ._worker import Worker
from .gate import Policy
from .trace import Trace
from .worker_files import load_workers

__all__ = [
    "CONVERSATION",
    "CallContext",
    "Function",
    "GenerationOptions",
    "Policy",
    "Registry",
    "Risk",
    "ToolContext",
    "Trace",
    "Worker",
    "WorkerContext",
    "call",
    "flow",
    "load_workers",
    "tool",
]
