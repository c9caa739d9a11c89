"""The Signatures of the shapes that ship; what is done with their answers stands in `graphs.shapes`."""

from ._investigate import INVESTIGATE

__all__ = ["INVESTIGATE"]
