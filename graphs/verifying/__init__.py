"""Verification of answers before they are final (P5)."""

from .verifying import Checks

__all__ = ["Checks"]
