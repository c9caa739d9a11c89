"""What makes the members of a society act: a gateway delivers their messages as turns (000).

Modules: `gateway`, `memory`, `role`, `routing`, `workers`, `workspace_file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .gateway import Gateway
    from .memory import AgentMemory, MemoryFiles
    from .role import AutonomousRole
    from .routing import Roster, route
    from .workspace_file import load_workspace

__all__ = ["AgentMemory", "AutonomousRole", "Gateway", "MemoryFiles", "Roster", "load_workspace", "route"]

__getattr__ = lazy(
    __name__,
    {
        ".gateway": "Gateway",
        ".memory": "AgentMemory MemoryFiles",
        ".role": "AutonomousRole",
        ".routing": "Roster route",
        ".workspace_file": "load_workspace",
    },
)
