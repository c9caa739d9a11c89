"""Runs turns: `TurnRunner` knows which turns are running, and `TurnPath` is the path of one."""

from .runner import TurnRunner
from .work import Resumption, RunnerParts, call_without_turn

__all__ = [
    "Resumption",
    "RunnerParts",
    "TurnRunner",
    "call_without_turn",
]
