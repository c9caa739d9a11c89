"""The data and stores of conversations (D7) and turns. No model and no role is used here (R7)."""

from ..core.lazy import lazy
from .conversation import MAY_HOLD_ROLE, OPEN, Draft, Message, MessageKind, Tail, TurnStatus
from .log import CONVERSATION, ConversationLog
from .turns import TURNS, TurnRecord, TurnRegister, thread_key

__all__ = [
    "CONVERSATION",
    "MAY_HOLD_ROLE",
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

__getattr__ = lazy(__name__, {"..agent": "Memory"})  # people look for `worldagent.Memory` here
