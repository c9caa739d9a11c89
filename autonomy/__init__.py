"""What makes the members of a society act: a gateway delivers their messages as turns (000)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .capability import Members
    from .gateway import Gateway
    from .memory import AgentMemory, MemoryFiles
    from .operators import agent_node, llm_node
    from .removal import export_member, remove_member
    from .responding import Operator
    from .role import AutonomousRole
    from .routing import Roster, route
    from .workspace_file import load_workspace

__all__ = [
    "AgentMemory",
    "AutonomousRole",
    "Gateway",
    "Members",
    "MemoryFiles",
    "Operator",
    "Roster",
    "agent_node",
    "export_member",
    "llm_node",
    "load_workspace",
    "remove_member",
    "route",
]

__getattr__ = lazy(
    __name__,
    {
        ".capability": "Members",
        ".gateway": "Gateway",
        ".memory": "AgentMemory MemoryFiles",
        ".operators": "agent_node llm_node",
        ".removal": "export_member remove_member",
        ".responding": "Operator",
        ".role": "AutonomousRole",
        ".routing": "Roster route",
        ".workspace_file": "load_workspace",
    },
)
