"""Turns and tasks as LangGraph graphs. The only folder that imports langgraph.

Names load on first use (PEP 562): `TurnEngine` loads dspy and langgraph, which take a second, and
`CheckpointSaver` langgraph. The others load neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoints import CheckpointSaver
    from .engine import TurnEngine
    from .requests import GraphOptions, TurnOutcome, TurnRequest, TurnRun
    from .shape import SUBAGENT, Composed, Shape, ShapeRegistry
    from .tasks import TaskContext, task

_HOMES = {
    "CheckpointSaver": ".checkpoints",
    "Composed": ".shape",
    "GraphOptions": ".requests",
    "SUBAGENT": ".shape",
    "Shape": ".shape",
    "ShapeRegistry": ".shape",
    "TaskContext": ".tasks",
    "TurnEngine": ".engine",
    "TurnOutcome": ".requests",
    "TurnRequest": ".requests",
    "TurnRun": ".requests",
    "task": ".tasks",
}

__all__ = [
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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
