"""Tracks which body of a call the running code belongs to, and keeps that code from ending the process."""

from .exits import Exited, kept_in
from .inside import Inside, Origin

__all__ = ["Exited", "Inside", "Origin", "kept_in"]
