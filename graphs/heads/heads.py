"""The heads of threads, out of the two places that know them: the newest checkpoint, and the row of a branch.

No engine and no model. What stands before a head is the conversation log's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...memory.branches import Branch, Branches, head_of
from ...storage import Database, Known, Lease, Transaction

if TYPE_CHECKING:
    from ..checkpoints import CheckpointSaver


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
        from ..checkpoints import CheckpointSaver  # it loads langgraph

        return Heads(await CheckpointSaver(database).create_tables(), branches)

    async def position(self, thread: str, *, lease: Lease | None = None) -> Position:
        """Where a thread stands.

        Args:
            thread: Its key.
            lease: Its ownership, which may know.

        Raises:
            StorageInvalid: What is kept of it cannot be read.
        """
        values = await self.values(thread, lease=lease)
        if lease is not None and Branch in lease.known:
            return _position(values, lease.known[Branch])
        return _position(values, None if self._branches is None else await self._branches.get(thread))

    async def values(self, thread: str, *, lease: Lease | None = None) -> Mapping[str, Any] | None:
        """The channels of a thread's newest checkpoint; None where it has none."""
        return None if self._saver is None else await self._saver.channels(thread, lease=lease)

    def read(self, transaction: Transaction, thread: str) -> tuple[Known, str | None]:
        """What `Lease.known` has of where a thread stands, and the thread's head."""
        known, values = (Known(), None) if self._saver is None else self._saver.read(transaction, thread)
        branch = None if self._branches is None else self._branches.row_of(transaction, thread)
        return {**known, Branch: branch}, _position(values, branch).head


def _position(values: Mapping[str, Any] | None, branch: Branch | None) -> Position:
    turn: str | None = (values or {}).get("turn")
    return Position(head_of(branch, turn, (values or {}).get("head")), turn or "")
