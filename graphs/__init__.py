"""Turns and tasks as LangGraph graphs. The only folder that imports langgraph."""

from ._checkpoints import CheckpointSaver
from ._composed import Composed
from ._context import GraphOptions
from ._engine import TurnEngine
from ._requests import TurnOutcome, TurnRequest, TurnRun
from ._shape import Shape, ShapeRegistry
from ._task import TaskContext, task

__all__ = [
    "CheckpointSaver",
    "Composed",
    "GraphOptions",
    "Shape",
    "ShapeRegistry",
    "TaskContext",
    "TurnEngine",
    "TurnOutcome",
    "TurnRequest",
    "TurnRun",
    "task",
]
