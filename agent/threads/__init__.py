"""The threads of a workspace, read from its database alone: their state, their open pauses, and cancelling them.

It works without an agent, and loads neither dspy nor langgraph. `runtime` runs turns, `thread` is the handle on one
conversation.
"""

from .branching import Branching
from .ending import end_left
from .register import ThreadFilters, ThreadRegister, ThreadState, ThreadStatus

__all__ = ["Branching", "ThreadFilters", "ThreadRegister", "ThreadState", "ThreadStatus", "end_left"]
