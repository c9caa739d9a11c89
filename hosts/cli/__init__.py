"""The command line: `worldagent ask`, `chat`, `task`, `roles`, `role-host`. A leaf; what it does, the library does.

Only `main` is public. Importing this folder loads nothing but the standard library.
"""

from ._main import main

__all__ = ["main"]
