"""Runs turns: `TurnRunner` knows which turns are running, and `TurnPath` is the path of one."""

from .branches import Edit, Replay
from .runner import TurnRunner
from .work import OnRoleChange, Resumption, RunnerParts, call_without_turn

__all__ = [
    "Edit",
    "OnRoleChange",
    "Replay",
    "Resumption",
    "RunnerParts",
    "TurnRunner",
    "call_without_turn",
]
