"""Built-in tools: files, shell, web, to-do list, exploring. They are Functions like others, behind the same gate."""

from ..harness.revealing import confirm, reveal
from .builtin import BUILTIN, OUTPUT_LIMITS, TIMEOUTS, BuiltinTools

__all__ = ["BUILTIN", "OUTPUT_LIMITS", "TIMEOUTS", "BuiltinTools", "confirm", "reveal"]
