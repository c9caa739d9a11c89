"""The heads of threads, out of the two places that know them: the newest checkpoint, and the row of a branch.

No engine and no model. What stands before a head is the conversation log's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...memory.branches import Branches, head_of
from ...storage import Database

if TYPE_CHECKING:
    from .._checkpoints import CheckpointSaver


class Position(NamedTuple):
    """Where a thread stands.

    Attributes:
        head: The last message of its conversation; None is the empty one.
        turn: The turn of its newest checkpoint; empty where it has none.
    """

    head: str | None
    turn: str


class Heads:
    """The heads of threads.

    Args:
        saver: Where checkpoints are; None where there are none.
        branches: The rows of branches; None where there are none.
    """

    def __init__(self, saver: CheckpointSaver | None, branches: Branches | None) -> None:
        self._saver = saver
        self._branches = branches

    @staticmethod
    async def open(database: Database, branches: Branches) -> Heads:
        """The heads in a database, for a caller that runs no turn.

        Raises:
            StorageUnavailable, StorageInvalid: The database cannot be used.
        """
        from .._checkpoints import CheckpointSaver  # it loads langgraph

        return Heads(await CheckpointSaver(database).create_tables(), branches)

    async def position(self, thread: str) -> Position:
        """Where a thread stands.

        Args:
            thread: Its key.

        Raises:
            StorageInvalid: What is kept of it cannot be read.
        """
        values = await self.values(thread) or {}
        branch = None if self._branches is None else await self._branches.get(thread)
        turn: str | None = values.get("turn")
        return Position(head_of(branch, turn, values.get("head")), turn or "")

    async def values(self, thread: str) -> Mapping[str, Any] | None:
        """The channels of a thread's newest checkpoint; None where it has none."""
        if self._saver is None:
            return None
        found = await self._saver.aget_tuple({"configurable": {"thread_id": thread}})
        return None if found is None else found.checkpoint["channel_values"]
