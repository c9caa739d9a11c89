"""The World Agent and its four surfaces: conversation, task, skill, schedule.

Names load on first use (PEP 562), so that what needs the settings alone does not wait for dspy and langgraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graphs import Composed
    from ._agent import WorldAgent
    from ._roles import Roles, StoredRoles
    from ._settings import Settings
    from ._stream import TurnStream
    from ._thread import Thread
    from ._turns import Trigger, Turn, TurnUsage
    from ._unattended import Notifier
    from ._unset import UNSET
    from .threads import ThreadState

_HOMES = {
    "UNSET": "._unset",
    "Composed": "..graphs",
    "Notifier": "._unattended",
    "Roles": "._roles",
    "Settings": "._settings",
    "StoredRoles": "._roles",
    "Thread": "._thread",
    "ThreadState": ".threads",
    "Trigger": "._turns",
    "Turn": "._turns",
    "TurnStream": "._stream",
    "TurnUsage": "._turns",
    "WorldAgent": "._agent",
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
