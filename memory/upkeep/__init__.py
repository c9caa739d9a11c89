"""Operations on all messages of a thread: find them, remove them, and write imported ones.

`log` appends single messages.
"""

from ..turns import keys_of
from .reading import AwareMoment, ReadChain, ReadMessage, chain_of, is_id
from .removal import RemovedMessages, portions, remove_messages, sharers

__all__ = [
    "AwareMoment",
    "ReadChain",
    "ReadMessage",
    "RemovedMessages",
    "chain_of",
    "is_id",
    "keys_of",
    "portions",
    "remove_messages",
    "sharers",
]
