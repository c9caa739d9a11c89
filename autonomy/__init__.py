"""What makes the members of a society act: a gateway delivers their messages as turns (000)."""

from .gateway import Gateway

__all__ = ["Gateway"]
