"""The World Agent and its four surfaces: conversation, task, skill, schedule."""

from ..graphs import Composed
from ._agent import WorldAgent
from ._roles import Roles, StoredRoles
from ._settings import Settings
from ._stream import TurnStream
from ._thread import Thread
from ._turns import Trigger, Turn, TurnUsage

__all__ = [
    "Composed",
    "Roles",
    "Settings",
    "StoredRoles",
    "Thread",
    "Trigger",
    "Turn",
    "TurnStream",
    "TurnUsage",
    "WorldAgent",
]
