"""Shapes that ship beside `subagent`. What runs a shape is in `graphs`; this folder stores nothing of its own."""

from .compaction import CompactionParams, CompactionResult, compaction_shape
from .graph import graph_shape
from .investigation import InvestigationParams, InvestigationResult, investigation_shape
from .map import MapParams, MapResult, map_shape
from .sandbox import SandboxLimits

__all__ = [
    "CompactionParams",
    "CompactionResult",
    "InvestigationParams",
    "InvestigationResult",
    "MapParams",
    "MapResult",
    "SandboxLimits",
    "compaction_shape",
    "graph_shape",
    "investigation_shape",
    "map_shape",
]
