"""Shapes that ship beside `subagent`. What runs a shape is in `graphs`; this folder stores nothing of its own."""

from ._compaction import CompactionParams, CompactionResult, compaction_shape
from ._graph import graph_shape
from ._investigation import InvestigationParams, InvestigationResult, investigation_shape
from ._map import MapParams, MapResult, map_shape
from ._sandbox import SandboxLimits

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
