"""Running turns: which are under way, one run at one of them, and what a thread waits for."""

from ._branching import Edit, Replay
from ._outside import call_outside
from ._pins import Pins
from ._runner import TurnRunner
from ._work import Ask, OnRoleChange, Resumption, RunnerParts

__all__ = ["Ask", "Edit", "OnRoleChange", "Pins", "Replay", "Resumption", "RunnerParts", "TurnRunner", "call_outside"]
