"""The command line: `worldagent ask`, `task`, `roles` and `role-host`. A leaf; everything it does, the library does.

Only `main` is public. Importing this folder loads nothing but the standard library.
"""

from ._main import main

__all__ = ["main"]
