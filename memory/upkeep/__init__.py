"""What is done to the log of a thread as a whole: finding it, removing it, and putting back what was read out of one.

Turns, and appending one by one, are the log's own matter.
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
