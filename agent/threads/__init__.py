"""The threads of a workspace, read from its database alone: where each stands, what it waits for, and its end.

It is there before an agent is, and loads neither dspy nor langgraph. `runtime` runs turns, `_thread` is the handle on
one conversation.
"""

from ._branching import Branching
from ._register import ThreadRegister
from ._schemas import SCHEMAS
from ._state import ThreadState, ThreadStatus
from ._wanted import Wanted

__all__ = ["SCHEMAS", "Branching", "ThreadRegister", "ThreadState", "ThreadStatus", "Wanted"]
