"""Tools that ship: files, shell, web, to-do list, exploring. They are Functions as others are, behind the same gate."""

from .builtin import OUTPUT_LIMITS, TIMEOUTS, BuiltinTools
from .names import BUILTIN

__all__ = ["BUILTIN", "OUTPUT_LIMITS", "TIMEOUTS", "BuiltinTools"]
