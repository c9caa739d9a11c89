"""Starts with a key: a repeated one is the same turn (T10). What runs a turn is the folder above."""

from ._looking import KeyBegun, unless_begun
from ._starts import KeyedStarts, asked_of

__all__ = ["KeyBegun", "KeyedStarts", "asked_of", "unless_begun"]
