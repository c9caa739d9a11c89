"""Functions and workers, and the one call that runs them, behind one gate. No model and no role in here."""

from ..core.generation import GenerationOptions
from .context import CallContext, ToolContext, WorkerContext
from .function import CONVERSATION, Function, Risk
from .gate import Policy
from .pipeline import call
from .registry import Registry
from .tool import flow, tool
from .trace import Trace
from .worker import Worker
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
