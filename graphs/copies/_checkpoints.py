"""Copying checkpoints, which each engine keeps in tables of another form.

What is read is checked as it is before a turn goes on with it: what no graph here wrote is not copied.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from langgraph.checkpoint.base import CheckpointTuple

from ...storage import Database, Transaction
from ...storage.copies import Check, Held
from ...storage.copies import Key as Reached
from .._checkpoints import CheckpointSaver, Key, Rows, Statements

CHECKPOINT_TABLES: Final = ("checkpoints", "writes", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")
"""LangGraph's tables on either engine."""

_BATCH: Final = 100
_KEYS: Final = "thread_id, checkpoint_ns, checkpoint_id"
_COUNT: Final = "SELECT COUNT(*) FROM checkpoints"


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint as it was read: its rows, and what they say."""

    rows: Rows
    found: CheckpointTuple


class CheckpointCopy:
    """The checkpoints of two databases, as a part of a copy. Made by `open`."""

    name = "checkpoints"

    def __init__(self, source: CheckpointSaver, target: CheckpointSaver) -> None:
        self._source = source
        self._target = target

    @classmethod
    async def open(cls, source: Database, target: Database) -> CheckpointCopy:
        """Open the checkpoints of both databases.

        Raises:
            StorageUnavailable, StorageInvalid: One cannot be used.
        """
        return cls(*[await CheckpointSaver(database).create_tables() for database in (source, target)])

    async def count(self) -> int:
        """See `Part.count`."""
        [(found,)] = await self._source.database.read(lambda tx: tx.execute(_COUNT))
        return int(found)

    async def batches(self, last: Reached | None) -> AsyncGenerator[tuple[Sequence[Kept], Reached]]:
        """See `Part.batches`."""
        async for kept, reached in _read(self._source, last):
            yield kept, reached

    async def put(self, batch: Sequence[Kept], check: Check) -> None:
        """See `Part.put`."""
        statements = [statement for kept in batch for statement in self._statements(kept)]

        def work(transaction: Transaction) -> None:
            check(transaction)
            for sql, params in statements:
                transaction.execute(sql, params)

        await self._target.database.transact(work)

    async def held(self) -> tuple[Held, Held]:
        """See `Part.held`."""
        return await _held(self._source), await _held(self._target)

    def _statements(self, kept: Kept) -> Statements:
        rows, found, tables = kept.rows, kept.found, self._target.tables
        versions = found.checkpoint["channel_versions"]
        statements = tables.put(rows.key, rows.parent, found.checkpoint, found.metadata, versions)
        written = zip(rows.writes_in_order(), found.pending_writes or (), strict=True)
        for (task, path), writes in groupby(written, key=lambda both: (both[0][0], both[0][4])):
            placed = [(row[5], channel, value) for row, (_, channel, value) in writes]
            statements += tables.put_writes(rows.key, placed, task=task, path=path, replace=False)
        return statements


async def _held(saver: CheckpointSaver) -> Held:
    held = Held()
    async for batch, _ in _read(saver, None):
        held = held.more([_text(kept) for kept in batch])
    return held


async def _read(saver: CheckpointSaver, last: Reached | None) -> AsyncGenerator[tuple[list[Kept], Reached]]:
    while True:
        where, given = (f"WHERE ({_KEYS}) > (?, ?, ?)", tuple(last)) if last else ("", ())
        statement = f"SELECT {_KEYS} FROM checkpoints {where} ORDER BY {_KEYS} LIMIT {_BATCH}"

        def work(transaction: Transaction) -> list[Rows | None]:
            keys = [Key(*row) for row in transaction.execute(statement, given)]  # noqa: B023 -- awaited at once
            return [saver.tables.get(transaction, key) for key in keys]

        batch = [Kept(rows, saver.decoded(rows)) for rows in await saver.database.read(work) if rows is not None]
        if not batch:
            return
        last = list(batch[-1].rows.key)
        yield batch, last


def _text(kept: Kept) -> str:
    """Stands for all that is kept of a checkpoint, the same on either engine."""
    rows, found = kept.rows, kept.found
    paths = {row[0]: row[4] for row in rows.writes}
    writes = sorted(found.pending_writes or (), key=lambda write: write[0])
    parts = (rows.key, rows.parent, found.checkpoint, found.metadata, paths, writes)
    return repr([_plain(part) for part in parts])


def _plain(value: Any) -> Any:
    """A value whose `repr` is the same however its mappings are sorted."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


__all__ = ["CHECKPOINT_TABLES", "CheckpointCopy"]
