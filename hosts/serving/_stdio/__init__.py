"""A service over standard input and output. What it answers is not decided here."""

from ._serve import serve_stdio

__all__ = ["serve_stdio"]
