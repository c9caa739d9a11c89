"""What the bodies of messages hold, by kind: the same for who goes on from one and for who brings one back."""

from .bodies import misfits
from .names import check_name, is_name

__all__ = ["check_name", "is_name", "misfits"]
