"""Moving what agents keep from one database to another: a home's file, or a Postgres server, in either direction.

A copy is an export of everything, written by an import into an empty target. Nothing else can open the target until
both ends were read again and compared. A copy that was interrupted is not continued: the next run discards what it left
and starts afresh. To move single threads, or to back up a home, see `upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from ..core.errors import InvalidArgument, StorageInvalid, ThreadBusy
from ..core.files import storage_errors
from ..graphs.copies import CHECKPOINT_TABLES, Checkpoints
from ..storage import EPOCHS, Database, Leases, PostgresAddress, Schema, Storage, Transaction
from ..storage.copies import COPYING, Held, Import, Part, copying_alone, schemas_at, tables_of
from .threads import SCHEMAS

Progress = Callable[[str, int, int], object]
"""Receives the part that is copied, how many of its items are copied, and how many it has, after each batch."""

_IN_FILE: Final = "SELECT name FROM sqlite_master WHERE type='table'"
_ON_SERVER: Final = "SELECT tablename FROM pg_tables WHERE schemaname=current_schema()"
_VERSIONS: Final = "SELECT name, version FROM wa_schema"
_SOURCE: Final = "SELECT last FROM wa_copy WHERE part=''"
_THREADS: Final = "SELECT key FROM wa_epoch WHERE key<>''"
_MADE_EMPTY: Final = ("wa_schema", "wa_copy", "checkpoint_migrations")  # have rows where no agent was, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy that was made.

    Attributes:
        source: What was copied.
        target: Where to.
        restarted: Whether an earlier copy into the target was interrupted; what it left was discarded.
        parts: What the target holds: tables and checkpoints by name.
    """

    source: str
    target: str
    restarted: bool
    parts: dict[str, Held]


@dataclass(frozen=True, slots=True)
class _Place:
    """What a place holds.

    Attributes:
        name: Its name, the same each time, for texts and databases; no password is in it.
        tables: The names of our tables and of LangGraph's, each after those that it refers to.
        filled: Those of them in which agents or a copy have written.
        versions: The version of each schema.
        source: What an interrupted copy into it was made of, as far as it is known.
    """

    name: str
    tables: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    source: str | None = None

    @property
    def half_copied(self) -> bool:
        """Whether a copy into it has not come to its end."""
        return COPYING.name in self.versions


async def copy_storage(source: Storage, target: Storage, *, progress: Progress | None = None) -> Copied:
    """Copy conversations, turns, calls and checkpoints; roles, the role key and attachments stay in the home.

    Stop the agents on both ends before. Until the copy is complete the target cannot be opened. After an interruption
    the same call starts afresh.

    Args:
        source: What to copy. It is not changed, but for tables of checkpoints where it has none.
        target: Where to; empty, or what an interrupted copy of the same source has left.
        progress: Called after each batch.

    Raises:
        InvalidArgument: There is no source, both are the same, or the target is in use or a copy of something else.
        ThreadBusy: Turns run in the source.
        StorageHalfCopied: The source is itself an incomplete copy, or another run copies into the target.
        SchemaTooNew: The source was written by a newer version of this package.
        StorageInvalid: In the end both do not hold the same, because agents wrote meanwhile.
        StorageUnavailable: One of them is out of reach. Run the copy again.
    """
    if source.place == target.place:
        raise InvalidArgument(f"{_named(source)!r} cannot be copied into itself", remedy="name another target")
    found = await _look(source)
    if not found.versions:
        raise InvalidArgument(
            f"there is no storage {found.name!r} to copy from", remedy="name a home or a database in use"
        )
    schemas = schemas_at(found.versions, SCHEMAS, database=found.name)  # both ends get the same tables
    async with aclosing(await Database.open(source.place, schemas=())) as old:
        await _check_idle(old, source, schemas)
        async with copying_alone(target):
            left = await _look(target)
            _check_target(left, found.name)
            async with aclosing(await Database.open(target.place, schemas=(*schemas, COPYING))) as new:
                run = Import(new)
                await run.begin(found.name, clear=left.filled[::-1])
                parts: list[Part] = [*tables_of(schemas), await Checkpoints.open(old, new)]
                for part in parts:
                    await _copy(part, old, run, progress or (lambda *_: None))
                held = {part.name: await _compared(part, old, new) for part in parts}
                await _check_idle(old, source, schemas)
                await run.finish()
    return Copied(source=found.name, target=left.name, restarted=left.half_copied, parts=held)


async def drop_copy(storage: Storage) -> None:
    """Remove what an interrupted copy has written, so that the place is as it was before.

    Raises:
        InvalidArgument: No copy into it was begun, or it is complete.
        StorageHalfCopied: A run copies into it.
        StorageUnavailable: It cannot be removed.
    """
    await _half(storage)
    async with copying_alone(storage):
        found = await _half(storage)  # once more, now that no other run can finish it meanwhile
        if not isinstance(storage.place, PostgresAddress):
            return _unlink(storage)
        async with aclosing(await Database.open(storage.place, schemas=())) as database:
            await database.transact(lambda tx: tx.execute(f"DROP TABLE {', '.join(found.tables)} CASCADE"))


async def _copy(part: Part, source: Database, run: Import, progress: Progress) -> None:
    [(total,)] = await source.read(lambda tx: tx.execute(f"SELECT COUNT(*) FROM {part.name}"))
    done = 0
    async for batch in part.batches(source):
        await run.write(part.statements(batch))
        done += len(batch)
        progress(part.name, done, total)


async def _compared(part: Part, source: Database, target: Database) -> Held:
    """What both hold of a part.

    Raises:
        StorageInvalid: It is not the same.
    """
    old, new = await Held.of(part, source), await Held.of(part, target)
    if old != new:
        raise StorageInvalid(
            f"{part.name!r} of {target.name!r} is not what {source.name!r} has: {new.rows} rows here, {old.rows} there",
            remedy="stop the agents on both, and run the copy again",
        )
    return new


def _named(storage: Storage) -> str:
    return str(storage.place).encode(errors="backslashreplace").decode()  # a folder's name may be no UTF-8


async def _look(storage: Storage) -> _Place:
    """What a place holds; a file that is not there is not made."""
    name = _named(storage)
    if storage.url is None and not storage.database.exists():
        return _Place(name)

    def work(transaction: Transaction) -> _Place:
        there = {table for (table,) in transaction.execute(_IN_FILE if storage.url is None else _ON_SERVER)}
        ours = ("wa_schema", *(table.name for table in tables_of((*SCHEMAS, COPYING))), *CHECKPOINT_TABLES)
        tables = tuple(table for table in ours if table in there)
        filled = [table for table in tables if table not in _MADE_EMPTY]
        filled = [table for table in filled if transaction.execute(f"SELECT 1 FROM {table} LIMIT 1")]
        versions = dict(transaction.execute(_VERSIONS)) if "wa_schema" in there else {}
        known = transaction.execute(_SOURCE) if "wa_copy" in there else []
        return _Place(name, tables, tuple(filled), versions, known[0][0] if known else None)

    async with aclosing(await Database.open(storage.place, schemas=())) as database:
        return await database.read(work)


async def _check_idle(database: Database, storage: Storage, schemas: Sequence[Schema]) -> None:
    """Refuse to copy what turns are changing.

    Raises:
        ThreadBusy: A thread has an owner.
    """
    if EPOCHS.name not in {schema.name for schema in schemas}:
        return
    keys = frozenset(key for (key,) in await database.read(lambda tx: tx.execute(_THREADS)))
    if owned := sorted(await Leases(database, storage.locks).owned(keys)):
        raise ThreadBusy(
            f"{len(owned)} turns run in {_named(storage)!r}, one of them on {owned[0]!r}",
            remedy="let them end, or drain their agents, and copy again",
        )


def _check_target(target: _Place, source: str) -> None:
    """Refuse to copy into what agents have used, or over an interrupted copy of something else.

    Raises:
        InvalidArgument: It is so.
    """
    if target.half_copied and target.source not in (None, source):
        raise InvalidArgument(
            f"{target.name!r} is a copy of {target.source!r} that is not finished",
            remedy="finish that one, or remove it with `worldagent storage drop`",
        )
    if target.filled and not target.half_copied:
        raise InvalidArgument(
            f"{target.name!r} is in use: its table {target.filled[0]!r} has rows",
            remedy="copy into a database or a home that is empty",
        )


async def _half(storage: Storage) -> _Place:
    found = await _look(storage)
    if found.half_copied:
        return found
    raise InvalidArgument(
        f"{found.name!r} is no copy that was begun and is not finished, so nothing of it is dropped",
        remedy="remove the home or the database by other means if it is not wanted",
    )


def _unlink(storage: Storage) -> None:
    file, remedy = storage.database, "end the process that uses it, or make the home writable"
    with storage_errors(f"{str(file)!r} cannot be removed", remedy=remedy):
        # The file itself at last: without the others it is still an incomplete copy.
        for suffix in ("-wal", "-shm", ""):
            file.with_name(file.name + suffix).unlink(missing_ok=True)


__all__ = ["Copied", "Progress", "copy_storage", "drop_copy"]
