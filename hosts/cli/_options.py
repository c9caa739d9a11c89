"""For `_chat`, which still imports this name; see `options`."""

from .options import WORKSPACE, ChatOptions

__all__ = ["WORKSPACE", "ChatOptions"]
