"""For `_chat`, which still imports this name; see `hosts`."""

from .hosts import EMBEDDED, check_hosts

__all__ = ["EMBEDDED", "check_hosts"]
