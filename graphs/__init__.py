"""Turns and tasks as LangGraph graphs. The only folder that imports langgraph.

Names load on first use (PEP 562): `TurnEngine` loads dspy and langgraph, which take a second, and
`CheckpointSaver` langgraph. The others load neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .checkpoints import CheckpointSaver
    from .engine import TurnEngine
    from .requests import GraphOptions, TurnOutcome, TurnRequest, TurnRun
    from .shape import SKILL, SUBAGENT, Composed, Shape, ShapeRegistry
    from .tasks import TaskContext, task

__all__ = [
    "SKILL",
    "SUBAGENT",
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

__getattr__ = lazy(
    __name__,
    {
        ".checkpoints": "CheckpointSaver",
        ".engine": "TurnEngine",
        ".requests": "GraphOptions TurnOutcome TurnRequest TurnRun",
        ".shape": "SKILL SUBAGENT Composed Shape ShapeRegistry",
        ".tasks": "TaskContext task",
    },
)
