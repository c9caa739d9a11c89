"""The Signatures of the shapes that ship; what is done with their answers stands in `graphs.shapes`."""

from .investigate import INVESTIGATE

__all__ = ["INVESTIGATE"]
