"""For `_chat`, which still imports this name; see `attachments`."""

from .attachments import attachment, attachments, left_out_text, named

__all__ = ["attachment", "attachments", "left_out_text", "named"]
