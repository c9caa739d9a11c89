"""Turns and tasks as LangGraph graphs. The only folder that imports langgraph."""

from ._composed import Composed
from ._context import GraphOptions
from ._engine import TurnEngine
from ._requests import EngineParts, TurnOutcome, TurnRequest, TurnRun
from ._shape import Shape, ShapeRegistry
from ._task import TaskContext, task

__all__ = [
    "Composed",
    "EngineParts",
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
