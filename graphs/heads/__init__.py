"""Where the conversations of threads end, for who runs turns and for who runs none."""

from .heads import Heads, Position

__all__ = ["Heads", "Position"]
