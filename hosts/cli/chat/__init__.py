"""The command `chat`: a conversation at a terminal, or line by line where there is none.

`loop` reads and dispatches, `commands` holds what begins with a slash, `turns` begins turns and goes on with them,
`drawing` and `lines` show what comes of it. The turns themselves are the agent's.
"""

from .start import chat

__all__ = ["chat"]
