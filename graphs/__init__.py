"""Turns and tasks as LangGraph graphs. The only folder that imports langgraph.

Names load on first use (PEP 562): `TurnEngine` loads dspy and langgraph, which take a second, and
`CheckpointSaver` langgraph. The others load neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._checkpoints import CheckpointSaver
    from ._composed import Composed
    from ._engine import TurnEngine
    from ._requests import GraphOptions, TurnOutcome, TurnRequest, TurnRun
    from ._shape import SUBAGENT, Shape, ShapeRegistry
    from ._task import TaskContext, task

_HOMES = {
    "CheckpointSaver": "._checkpoints",
    "Composed": "._composed",
    "GraphOptions": "._requests",
    "SUBAGENT": "._shape",
    "Shape": "._shape",
    "ShapeRegistry": "._shape",
    "TaskContext": "._task",
    "TurnEngine": "._engine",
    "TurnOutcome": "._requests",
    "TurnRequest": "._requests",
    "TurnRun": "._requests",
    "task": "._task",
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
