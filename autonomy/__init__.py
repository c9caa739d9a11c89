"""What makes the members of a society act: a gateway delivers their messages as turns (000)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .gateway import Gateway
    from .memory import AgentMemory, MemoryFiles
    from .operators import agent_node, llm_node
    from .responding import Operator
    from .role import AutonomousRole
    from .routing import Roster, route
    from .workspace_file import load_workspace

__all__ = [
    "AgentMemory",
    "AutonomousRole",
    "Gateway",
    "MemoryFiles",
    "Operator",
    "Roster",
    "agent_node",
    "llm_node",
    "load_workspace",
    "route",
]

__getattr__ = lazy(
    __name__,
    {
        ".gateway": "Gateway",
        ".memory": "AgentMemory MemoryFiles",
        ".operators": "agent_node llm_node",
        ".responding": "Operator",
        ".role": "AutonomousRole",
        ".routing": "Roster route",
        ".workspace_file": "load_workspace",
    },
)
