"""What the bodies of messages hold, by kind: the same for who goes on from one and for who brings one back."""

from ._bodies import misfits

__all__ = ["misfits"]
