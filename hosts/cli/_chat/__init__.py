"""The command `chat`: a conversation at a terminal, or line by line where there is none.

`_loop` reads and dispatches, `_commands` holds what begins with a slash, `_turns` begins turns and goes on with them,
`_screen` and `_lines` show what comes of it. The turns themselves are the agent's.
"""

from ._chat import chat

__all__ = ["chat"]
