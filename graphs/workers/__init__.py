"""The worker's loop, and the `subagent` shape that runs it by name. What a model is told is in `signatures.workers`."""

from .._shape import SUBAGENT
from ._loop import WorkerState
from ._subagents import Subagents

__all__ = ["SUBAGENT", "Subagents", "WorkerState"]
