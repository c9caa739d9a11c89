"""The models of one agent: its own, and those that workers name. How one is called is `signatures`' matter."""

from ._models import Models, check_named

__all__ = ["Models", "check_named"]
