"""Tracks which body of a call the running code belongs to, and keeps that code from ending the process."""

from .exits import Exited, without_exit
from .inside import Inside, Origin

__all__ = ["Exited", "Inside", "Origin", "without_exit"]
