"""For `_chat`, which still imports this name; see `apps`."""

from .apps import check_app

__all__ = ["check_app"]
