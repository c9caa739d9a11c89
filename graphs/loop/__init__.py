"""The loop of model steps and calls, for conversations and workers. The `subagent` shape runs a worker by name."""

from .conversation import Conversation
from .finding import FINDING, ToolSearch
from .graph import (
    ACT,
    LoopGraph,
    composer_graph,
    conversation_graph,
    node_of,
    task_graph,
)
from .loop import HostTask, LoopState, first_state, run_graph
from .subagents import ComposedTasks, SubagentParams, SubagentResult, Subagents, WorkerLoop, WorkerTasks
from .tools import Tools

__all__ = [
    "ACT",
    "FINDING",
    "ComposedTasks",
    "Conversation",
    "HostTask",
    "LoopGraph",
    "LoopState",
    "SubagentParams",
    "SubagentResult",
    "Subagents",
    "ToolSearch",
    "Tools",
    "WorkerLoop",
    "WorkerTasks",
    "composer_graph",
    "conversation_graph",
    "first_state",
    "node_of",
    "run_graph",
    "task_graph",
]
