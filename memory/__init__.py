"""What an agent remembers, as data and stores: so far the conversation (D7). No model and no role in it (R7)."""

from ._conversation import ConversationStore, Draft, Message, MessageKind
from ._log import CONVERSATION, ConversationLog

__all__ = ["CONVERSATION", "ConversationLog", "ConversationStore", "Draft", "Message", "MessageKind"]
