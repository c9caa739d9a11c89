"""The data and stores of conversations (D7) and turns. No model and no role is used here (R7)."""

from typing import Any

from ..core.lazy import lazy
from .conversation import OPEN, Draft, Message, MessageKind, Tail, TurnStatus
from .log import CONVERSATION, ConversationLog
from .turns import TURNS, TurnRecord, TurnRegister, thread_key

__all__ = [
    "CONVERSATION",
    "OPEN",
    "TURNS",
    "ConversationLog",
    "Draft",
    "Message",
    "MessageKind",
    "Tail",
    "TurnRecord",
    "TurnRegister",
    "TurnStatus",
    "thread_key",
]

_load = lazy(__name__, {"..agent": "Memory"})


def __getattr__(name: str) -> Any:
    """`worldagent.Memory`, which people look for here. It belongs to the agent, and is loaded when it is asked for."""
    return _load(name)
