"""Runs turns: `TurnRunner` knows which turns are running, and `TurnPath` is the path of one."""

from .branching import Edit, Replay
from .calls import call_without_turn
from .keeping import keep, kept, unkeep
from .pins import Pins
from .runner import TurnRunner
from .work import OnRoleChange, Resumption, RunnerParts

__all__ = [
    "Edit",
    "OnRoleChange",
    "Pins",
    "Replay",
    "Resumption",
    "RunnerParts",
    "TurnRunner",
    "call_without_turn",
    "keep",
    "kept",
    "unkeep",
]
