"""The heads of threads, read from the two places that store them: the newest checkpoint and the row of a branch.

This module needs no engine and no model. The conversation log has the messages before a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...memory.branches import Branch, Branches, head_of
from ...storage import Database, Known, Lease, Transaction

if TYPE_CHECKING:
    from ..checkpoints import CheckpointSaver


class Position(NamedTuple):
    """The position of a thread.

    Attributes:
        head: The last message of its conversation; None if it is empty.
        turn: The turn of its newest checkpoint; empty if it has none.
    """

    head: str | None
    turn: str


class Heads:
    """The heads of threads.

    Args:
        saver: The checkpoints; None if there are none.
        branches: The rows of branches; None if there are none.
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
        from ..checkpoints import CheckpointSaver  # it imports langgraph

        return Heads(await CheckpointSaver(database).create_tables(), branches)

    async def position(self, thread: str, *, lease: Lease | None = None) -> Position:
        """The position of a thread.

        Args:
            thread: Its key.
            lease: Its ownership, which can cache the position.

        Raises:
            StorageInvalid: The stored position cannot be read.
        """
        values = await self.values(thread, lease=lease)
        if lease is not None and Branch in lease.known:
            return _position(values, lease.known[Branch])
        return _position(values, None if self._branches is None else await self._branches.get(thread))

    async def values(self, thread: str, *, lease: Lease | None = None) -> Mapping[str, Any] | None:
        """The channels of a thread's newest checkpoint; None if it has none."""
        return None if self._saver is None else await self._saver.channels(thread, lease=lease)

    def read(self, transaction: Transaction, thread: str) -> tuple[Known, str | None]:
        """The values of `Lease.known` for the position of a thread, and the thread's head."""
        known, values = (Known(), None) if self._saver is None else self._saver.read(transaction, thread)
        branch = None if self._branches is None else self._branches.row_of(transaction, thread)
        return {**known, Branch: branch}, _position(values, branch).head


def _position(values: Mapping[str, Any] | None, branch: Branch | None) -> Position:
    turn: str | None = (values or {}).get("turn")
    return Position(head_of(branch, turn, (values or {}).get("head")), turn or "")
