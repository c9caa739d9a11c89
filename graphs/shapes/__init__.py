"""The shapes that ship in addition to `subagent`. `graphs` runs shapes; this folder stores nothing itself."""

from .compaction import CompactionParams, CompactionResult, compaction_shape
from .graph import graph_shape
from .investigation import InvestigationParams, InvestigationResult, investigation_shape
from .langchain import langchain_tools
from .map import MapParams, MapResult, map_shape
from .module import module_shape, module_worker
from .sandbox import SandboxLimits
from .signature import signature_worker

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
    "langchain_tools",
    "map_shape",
    "module_shape",
    "module_worker",
    "signature_worker",
]
