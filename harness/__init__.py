"""Functions, workers, the call that runs them, and the gate. This package knows no model and no role."""

from ..core.events import Risk
from ..core.generation import GenerationOptions
from .context import CallContext, ToolContext, WorkerContext
from .function import CONVERSATION, Function
from .gate import Policy
from .pipeline import call
from .registry import Registry
from .service_tool import ServiceTool
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
    "ServiceTool",
    "ToolContext",
    "Trace",
    "Worker",
    "WorkerContext",
    "call",
    "flow",
    "load_workers",
    "tool",
]
