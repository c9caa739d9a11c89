"""The command line: `worldagent ask`, `chat`, `task`, `resume`, `threads` and more. A leaf package.

The library does the work. Only `main` is public. Importing this package loads only the standard library.
"""

from .entry import main

__all__ = ["main"]
