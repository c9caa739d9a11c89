"""For `_chat`, which still imports this name; see `messages`."""

from .messages import attachment, attachments, left_out_text, named

__all__ = ["attachment", "attachments", "left_out_text", "named"]
