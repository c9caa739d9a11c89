"""The World Agent and its four surfaces: conversation, task, skill, schedule.

Names load on first use (PEP 562), so that an import of the settings alone does not load dspy and langgraph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from ..graphs import Composed
    from .agent import WorldAgent
    from .background import Background, BackgroundState, BackgroundTask
    from .graph import GraphContext
    from .memory import Memory, WorkspaceMemory
    from .requests import Edit, Replay, Resume, Say, Scheduled, Skill, Task
    from .roles import Roles, StoredRoles
    from .runtime.runner import TurnStream
    from .settings import UNSET, Settings
    from .thread import Thread
    from .threads import ThreadState
    from .turns import Trigger, Turn, TurnUsage, Withheld
    from .unattended import Notifier

__all__ = [
    "UNSET",
    "Background",
    "BackgroundState",
    "BackgroundTask",
    "Composed",
    "Edit",
    "GraphContext",
    "Memory",
    "Notifier",
    "Replay",
    "Resume",
    "Roles",
    "Say",
    "Scheduled",
    "Settings",
    "Skill",
    "StoredRoles",
    "Task",
    "Thread",
    "ThreadState",
    "Trigger",
    "Turn",
    "TurnStream",
    "TurnUsage",
    "Withheld",
    "WorkspaceMemory",
    "WorldAgent",
]

__getattr__ = lazy(
    __name__,
    {
        "..graphs": "Composed",
        ".agent": "WorldAgent",
        ".background": "Background BackgroundState BackgroundTask",
        ".graph": "GraphContext",
        ".memory": "WorkspaceMemory Memory",
        ".requests": "Edit Replay Resume Say Scheduled Skill Task",
        ".roles": "Roles StoredRoles",
        ".settings": "UNSET Settings",
        ".thread": "Thread",
        ".threads": "ThreadState",
        ".runtime.runner": "TurnStream",
        ".turns": "Trigger Turn TurnUsage Withheld",
        ".unattended": "Notifier",
    },
)
