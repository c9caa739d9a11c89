"""What the model sees of a long thread: a summary of its beginning, what stays word for word, the newest turns."""

from .window import Window

__all__ = ["Window"]
