"""The last messages of threads, for code that runs turns and for code that does not."""

from .heads import Heads, Position

__all__ = ["Heads", "Position"]
