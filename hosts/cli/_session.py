"""For `_chat`, which still imports this name; see `command`, `exits` and `session`."""

from .command import run
from .exits import DONE, FAILED, INTERRUPTED, PAUSED
from .session import EMBEDDED_MODEL, open_agent, thread_of

__all__ = ["DONE", "EMBEDDED_MODEL", "FAILED", "INTERRUPTED", "PAUSED", "open_agent", "run", "thread_of"]
