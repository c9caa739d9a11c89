"""The Signatures of the shapes that ship. `graphs.shapes` uses their answers."""

from .investigate import INVESTIGATE

__all__ = ["INVESTIGATE"]
