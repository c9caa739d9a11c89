"""Copying checkpoints by LangGraph's own savers, since each engine keeps them in tables of another form.

What is read is checked as it is before a turn goes on with it: what no graph here wrote is not copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.base import CheckpointTuple

from ...storage import Database, PostgresAddress
from ...storage.copies import Check, Held, Key
from .._checkpoints import Saver, WholeSaver, open_saver

Place = Path | PostgresAddress

CHECKPOINT_TABLES: Final = ("checkpoints", "writes", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")
"""LangGraph's tables on either engine."""

_BATCH: Final = 100
_AT_ONCE: Final = 4  # as many connections as a saver has
_KEYS: Final = "thread_id, checkpoint_ns, checkpoint_id"
_COUNT: Final = "SELECT COUNT(*) FROM checkpoints"
_PATHS: Final = f"SELECT DISTINCT task_id, task_path FROM {{}} WHERE ({_KEYS}) = (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a copy.

    Attributes:
        database: Knows which checkpoints there are.
        saver: Reads and writes them.
    """

    database: Database
    saver: Saver

    @property
    def writes(self) -> str:
        """The table of what tasks have written."""
        return "writes" if isinstance(self.saver, WholeSaver) else "checkpoint_writes"


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint, and the path of each task that has written beside it."""

    found: CheckpointTuple
    paths: Mapping[str, str]


class CheckpointCopy:
    """The checkpoints of two databases, as a part of a copy. Made by `open`."""

    name = "checkpoints"

    def __init__(self, source: End, target: End) -> None:
        self._source = source
        self._target = target

    @classmethod
    @asynccontextmanager
    async def open(
        cls, source: tuple[Database, Place], target: tuple[Database, Place]
    ) -> AsyncGenerator[CheckpointCopy]:
        """Open the checkpoints of both databases, which are open themselves.

        Raises:
            StorageUnavailable, StorageInvalid: One cannot be used.
        """
        async with AsyncExitStack() as opened:
            ends: list[End] = []
            for database, place in (source, target):
                saver = await open_saver(place)
                opened.push_async_callback(saver.aclose)
                ends.append(End(database, saver))
            written = ends[1].saver
            if isinstance(written, WholeSaver):
                # Not each of them needs to be on the disk before the next; the end of the copy is, and all before it.
                await written.conn.execute("PRAGMA synchronous=NORMAL")
            yield cls(*ends)

    async def count(self) -> int:
        """See `Part.count`."""
        [(found,)] = await self._source.database.read(lambda tx: tx.execute(_COUNT))
        return int(found)

    async def batches(self, last: Key | None) -> AsyncGenerator[tuple[Sequence[Kept], Key]]:
        """See `Part.batches`."""
        async for kept, reached in _read(self._source, last):
            yield kept, reached

    async def put(self, batch: Sequence[Kept], check: Check) -> None:
        """See `Part.put`. The savers have transactions of their own, so it is checked before."""
        await self._target.database.transact(check)
        for begin in range(0, len(batch), _AT_ONCE):
            await asyncio.gather(*map(self._put, batch[begin : begin + _AT_ONCE]))

    async def held(self) -> tuple[Held, Held]:
        """See `Part.held`."""
        return await _held(self._source), await _held(self._target)

    async def _put(self, kept: Kept) -> None:
        found, saver = kept.found, self._target.saver
        where: Any = found.config
        before: Any = found.parent_config or {"configurable": {"checkpoint_id": None}}
        given: Any = {"configurable": {**where["configurable"], **before["configurable"]}}
        await saver.aput(given, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])
        for task, writes in groupby(found.pending_writes or (), key=lambda write: write[0]):
            told = [(channel, value) for _, channel, value in writes]
            await saver.aput_writes(where, told, task, kept.paths.get(task, ""))


async def _held(end: End) -> Held:
    held = Held()
    async for batch, _ in _read(end, None):
        held = held.more([_text(kept) for kept in batch])
    return held


async def _read(end: End, last: Key | None) -> AsyncGenerator[tuple[list[Kept], Key]]:
    while True:
        where, given = (f"WHERE ({_KEYS}) > (?, ?, ?)", tuple(last)) if last else ("", ())
        statement = f"SELECT {_KEYS} FROM checkpoints {where} ORDER BY {_KEYS} LIMIT {_BATCH}"
        keys = await end.database.read(lambda tx: tx.execute(statement, given))  # noqa: B023 -- awaited at once
        if not keys:
            return
        batch: list[Kept] = []
        for begin in range(0, len(keys), _AT_ONCE):
            found = await asyncio.gather(*(_one(end, key) for key in keys[begin : begin + _AT_ONCE]))
            batch += [kept for kept in found if kept is not None]
        last = list(keys[-1])
        yield batch, last


async def _one(end: End, key: tuple[Any, ...]) -> Kept | None:
    """One checkpoint; None where it was removed meanwhile."""
    thread, namespace, checkpoint = key
    configurable = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    found = await end.saver.aget_tuple({"configurable": configurable})
    if found is None:
        return None
    paths: list[tuple[Any, ...]] = []
    if found.pending_writes:
        paths = await end.database.read(lambda tx: tx.execute(_PATHS.format(end.writes), key))
    return Kept(found, dict(paths))


def _text(kept: Kept) -> str:
    """Stands for all that is kept of a checkpoint, the same on either engine."""
    found = kept.found
    writes = sorted(found.pending_writes or (), key=lambda write: write[0])
    parent: Any = found.parent_config
    before = None if parent is None else parent["configurable"]["checkpoint_id"]
    where: Any = found.config
    parts = (where["configurable"], before, found.checkpoint, found.metadata, kept.paths)
    return repr([_plain(part) for part in (*parts, writes)])


def _plain(value: Any) -> Any:
    """A value whose `repr` is the same however its mappings are sorted."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


__all__ = ["CHECKPOINT_TABLES", "CheckpointCopy"]
