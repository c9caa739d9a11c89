"""Copies checkpoints from one database to another. The two engines store them in different tables.

Each checkpoint is checked as it is before a turn resumes from it, so only what the graphs here write is copied.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from langgraph.checkpoint.base import CheckpointTuple

from ..storage import Database, Transaction
from ..storage.copies import Statements
from .checkpoints import CheckpointSaver, Key, Rows

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


__all__ = ["CHECKPOINT_TABLES", "Checkpoints"]
