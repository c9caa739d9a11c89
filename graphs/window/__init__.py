"""The part of a long thread that the model sees: a summary of its beginning, messages kept word for word, new turns."""

from .window import Window

__all__ = ["Window"]
