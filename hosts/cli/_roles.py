"""For `_chat`, which still imports this name; see `roles`."""

from .roles import roles_table

__all__ = ["roles_table"]
