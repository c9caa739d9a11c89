"""The loop of model steps and calls, for conversations and workers. The `subagent` shape runs a worker by name."""

from .conversation import Conversation
from .loop import HostTask, LoopGraph, LoopState, build_graph, first_state, run_graph, turn_graph
from .subagents import SubagentParams, SubagentResult, Subagents, WorkerLoop, WorkerTasks
from .tools import Tools

__all__ = [
    "Conversation",
    "HostTask",
    "LoopGraph",
    "LoopState",
    "SubagentParams",
    "SubagentResult",
    "Subagents",
    "Tools",
    "WorkerLoop",
    "WorkerTasks",
    "build_graph",
    "first_state",
    "run_graph",
    "turn_graph",
]
