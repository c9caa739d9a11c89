"""What is done to the log of a thread as a whole: finding it, removing it, and putting back what was read out of one.

Turns, and appending one by one, are the log's own matter.
"""

from .._turns import keys_of
from ._reading import ReadChain, ReadMessage, root_of
from ._removal import RemovedMessages, portions, remove_messages, sharers

__all__ = [
    "ReadChain",
    "ReadMessage",
    "RemovedMessages",
    "keys_of",
    "portions",
    "remove_messages",
    "root_of",
    "sharers",
]
