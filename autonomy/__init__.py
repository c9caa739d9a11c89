"""What makes the members of a society act: a gateway delivers their messages as turns (000).

Modules: `gateway`, `memory`, `role`, `routing`, `workers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .gateway import Gateway
    from .memory import AgentMemory, MemoryFiles
    from .role import AutonomousRole
    from .routing import Roster, route

__all__ = ["AgentMemory", "AutonomousRole", "Gateway", "MemoryFiles", "Roster", "route"]

__getattr__ = lazy(
    __name__,
    {
        ".gateway": "Gateway",
        ".memory": "AgentMemory MemoryFiles",
        ".role": "AutonomousRole",
        ".routing": "Roster route",
    },
)
