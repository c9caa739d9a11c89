"""The bodies of messages by kind. Resuming a turn and importing a thread use the same rules."""

from .bodies import validation_errors
from .names import check_name, is_name

__all__ = ["check_name", "is_name", "validation_errors"]
