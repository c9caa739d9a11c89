"""The command line: `worldagent ask`, `chat`, `task`, `resume`, `threads` and more. A leaf; the library does the work.

Only `main` is public. Importing this folder loads nothing but the standard library.
"""

from .entry import main

__all__ = ["main"]
