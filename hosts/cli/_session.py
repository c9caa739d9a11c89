"""For `_chat`, which still imports this name; see `session`."""

from .session import DONE, FAILED, INTERRUPTED, PAUSED, open_agent, run

__all__ = ["DONE", "FAILED", "INTERRUPTED", "PAUSED", "open_agent", "run"]
