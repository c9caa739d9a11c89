"""The heads of threads, read from the two places that store them: the newest checkpoint and the row of a branch.

This module needs no engine and no model. The conversation log has the messages before a head.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from langgraph.checkpoint.base import CheckpointTuple

from ..memory.branches import Branch, Branches, head_of
from ..storage import Database, Known, Lease, Transaction
from ..storage.copies import Statements
from .checkpoints import CheckpointSaver, Key, Rows

if TYPE_CHECKING:
    from .checkpoints import CheckpointSaver


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
        from .checkpoints import CheckpointSaver  # it imports langgraph

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


CHECKPOINT_TABLES: Final = ("checkpoints", "writes", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")
"""LangGraph's tables on both engines."""

_BATCH: Final = 100
_KEYS: Final = "thread_id, checkpoint_ns, checkpoint_id"


class Kept(NamedTuple):
    """A checkpoint that was read: its rows and their decoded content."""

    rows: Rows
    found: CheckpointTuple


class Checkpoints:
    """The checkpoints of two databases; a `Part`. Use `open` to make it."""

    name = "checkpoints"

    def __init__(self, target: CheckpointSaver) -> None:
        self._tables = target.tables

    @classmethod
    async def open(cls, source: Database, target: Database) -> Self:
        """Create the tables in a database that lacks them.

        Raises:
            StorageUnavailable, StorageInvalid: One of the databases cannot be used.
        """
        await CheckpointSaver(source).create_tables()
        return cls(await CheckpointSaver(target).create_tables())

    async def batches(self, database: Database) -> AsyncGenerator[Sequence[Kept]]:
        """See `Part.batches`.

        Raises:
            StorageInvalid: A checkpoint cannot be read.
        """
        saver, last = CheckpointSaver(database), tuple[str, ...]()
        while True:
            after = f"WHERE ({_KEYS}) > (?, ?, ?)" if last else ""
            statement = f"SELECT {_KEYS} FROM checkpoints {after} ORDER BY {_KEYS} LIMIT {_BATCH}"

            def work(transaction: Transaction) -> list[Rows | None]:
                keys = transaction.execute(statement, last)  # noqa: B023 -- awaited at once
                return [saver.tables.get(transaction, Key(*key)) for key in keys]

            batch = [Kept(rows, saver.decoded(rows)) for rows in await database.read(work) if rows is not None]
            if not batch:
                return
            yield batch
            last = tuple(batch[-1].rows.key)

    def statements(self, batch: Sequence[Kept]) -> Statements:
        """See `Part.statements`."""
        for rows, found in batch:
            versions = found.checkpoint["channel_versions"]
            yield from self._tables.put(rows.key, rows.parent, found.checkpoint, found.metadata, versions)
            for row, (task, channel, value) in zip(rows.writes_in_order(), found.pending_writes or (), strict=True):
                placed = [(row[5], channel, value)]
                yield from self._tables.put_writes(rows.key, placed, task=task, path=row[4], replace=False)

    def text(self, item: Kept) -> str:
        """See `Part.text`."""
        rows, found = item
        paths = {row[0]: row[4] for row in rows.writes}
        writes = sorted(found.pending_writes or (), key=lambda write: write[0])
        parts = (rows.key, rows.parent, found.checkpoint, found.metadata, paths, writes)
        return repr([_plain(part) for part in parts])


def _plain(value: Any) -> Any:
    """A value whose `repr` does not depend on the order of its mappings."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
