"""Runs turns: `TurnRunner` knows which turns are running, and `TurnPath` is the path of one."""

from ..threads.branching import Edit, Replay
from .runner import TurnRunner
from .work import OnRoleChange, Pins, Resumption, RunnerParts, call_without_turn, keep, kept, unkeep

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
