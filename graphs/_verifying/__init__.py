"""Answers that are judged before they count (P5)."""

from ._verifying import Checks

__all__ = ["Checks"]
