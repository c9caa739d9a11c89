"""The threads of a workspace, read from its database alone: their state, their open pauses, and cancelling them.

It works without an agent, and loads neither dspy nor langgraph. `runtime` runs turns, `thread` is the handle on one
conversation.
"""

from .branching import Branching
from .register import ThreadRegister
from .schemas import SCHEMAS
from .state import ThreadState, ThreadStatus
from .wanted import ThreadFilters

__all__ = ["SCHEMAS", "Branching", "ThreadFilters", "ThreadRegister", "ThreadState", "ThreadStatus"]
