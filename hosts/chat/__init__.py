"""The command `chat`: a conversation at a terminal, or line by line without one.

`loop` reads, dispatches and handles signals. `session` holds the agent and runs the turns, `commands` is the table of
slash commands. `screen` and `lines` are the two views: a terminal, and pipes.
"""

from .loop import chat

__all__ = ["chat"]
