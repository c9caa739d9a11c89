"""The World Agent and its four surfaces: conversation, task, skill, schedule.

Names load on first use (PEP 562), so that an import of the settings alone does not load dspy and langgraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graphs import Composed
    from .agent import WorldAgent
    from .roles import Roles, StoredRoles
    from .settings import UNSET, Settings
    from .thread import Thread
    from .threads import ThreadState
    from .turns import Trigger, Turn, TurnStream, TurnUsage
    from .unattended import Notifier

_HOMES = {
    "UNSET": ".settings",
    "Composed": "..graphs",
    "Notifier": ".unattended",
    "Roles": ".roles",
    "Settings": ".settings",
    "StoredRoles": ".roles",
    "Thread": ".thread",
    "ThreadState": ".threads",
    "Trigger": ".turns",
    "Turn": ".turns",
    "TurnStream": ".turns",
    "TurnUsage": ".turns",
    "WorldAgent": ".agent",
}

__all__ = [
    "UNSET",
    "Composed",
    "Notifier",
    "Roles",
    "Settings",
    "StoredRoles",
    "Thread",
    "ThreadState",
    "Trigger",
    "Turn",
    "TurnStream",
    "TurnUsage",
    "WorldAgent",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
