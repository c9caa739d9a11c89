"""For `_chat`, which still imports this name; see `signals`."""

from .signals import signals_handled

__all__ = ["signals_handled"]
