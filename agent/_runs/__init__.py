"""Running turns: which are under way, one run at one of them, and what a thread waits for."""

from ._pins import Pins
from ._runner import TurnRunner
from ._work import Ask, OnRoleChange, Resumption, RunnerParts

__all__ = ["Ask", "OnRoleChange", "Pins", "Resumption", "RunnerParts", "TurnRunner"]
