"""For `_chat`, which still imports this name; see `sources`."""

from .sources import one_reader, role, text

__all__ = ["one_reader", "role", "text"]
