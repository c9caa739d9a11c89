"""Answers that are judged before they count (P5)."""

from .verifying import Checks

__all__ = ["Checks"]
