"""For `_chat`, which still imports this name; see `messages`."""

from .messages import author_text, message_text

__all__ = ["author_text", "message_text"]
