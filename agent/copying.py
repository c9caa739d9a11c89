"""Copies the data of agents from one database to another: a home's file, or a Postgres server, in either direction.

A copy is an export of everything, imported into an empty target. Nothing else can open the target until both ends have
been read again and compared. An interrupted copy is not continued: the next run discards its rows and starts afresh. To
move single threads, or to back up a home, see `upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from ..core.errors import InvalidArgument, StorageInvalid, ThreadBusy
from ..core.files import storage_errors
from ..graphs.checkpoints.saver import CHECKPOINT_TABLES, Checkpoints
from ..storage import EPOCHS, Database, Leases, PostgresAddress, Schema, Storage, Transaction
from ..storage.copies import Import, Part, PartDigest, copying_alone, schemas_at, tables_of
from ..storage.schema import CAPABILITY, COPYING
from .capabilities import installed_schemas
from .stores import SCHEMAS

Progress = Callable[[str, int, int], object]
"""Receives after each batch: the part being copied, how many of its items are copied, and how many it has."""

_IN_FILE: Final = "SELECT name FROM sqlite_master WHERE type='table'"
_ON_SERVER: Final = "SELECT tablename FROM pg_tables WHERE schemaname=current_schema()"
_VERSIONS: Final = "SELECT name, version FROM wa_schema"
_SOURCE: Final = "SELECT last FROM wa_copy WHERE part=''"
_THREADS: Final = "SELECT key FROM wa_epoch WHERE key<>''"
TABLES_WITH_OWN_ROWS: Final = (
    "wa_schema",
    "wa_copy",
    "checkpoint_migrations",
)  # have rows even if no agent has used them


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A completed copy.

    Attributes:
        source: The source.
        target: The target.
        restarted: Whether an earlier copy into the target was interrupted and its rows were discarded.
        parts: The contents of the target: tables and checkpoints by name.
    """

    source: str
    target: str
    restarted: bool
    parts: dict[str, PartDigest]


@dataclass(frozen=True, slots=True)
class _Place:
    """The contents of a storage place.

    Attributes:
        name: Its stable name for texts and databases, without a password.
        tables: The names of our tables and of LangGraph's, each after the ones that it refers to.
        filled: Those of them that have rows from agents or from a copy.
        versions: The version of each schema.
        source: The source of an interrupted copy into this place, if it is known.
        there: The names of all its tables, also of those that are not ours.
    """

    name: str
    tables: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    source: str | None = None
    there: frozenset[str] = frozenset()

    @property
    def half_copied(self) -> bool:
        """Whether a copy into this place is incomplete."""
        return COPYING.name in self.versions


async def copy_storage(source: Storage, target: Storage, *, progress: Progress | None = None) -> Copied:
    """Copy conversations, turns, calls and checkpoints; roles, the role key and attachments stay in the home.

    Stop the agents on both ends first. Until the copy is complete the target cannot be opened. After an interruption
    the same call starts afresh.

    Args:
        source: What to copy. It is not changed, except that missing checkpoint tables are created.
        target: The target: empty, or left by an interrupted copy of the same source.
        progress: Called after each batch.

    Raises:
        InvalidArgument: The source is missing, both are the same, the target is in use or a copy of something else, or
            the source has tables of a capability that is not installed, or that its migrations do not make.
        ThreadBusy: Turns run in the source.
        StorageHalfCopied: The source is itself an incomplete copy, or another run copies into the target.
        SchemaTooNew: The source was written by a newer version of this package.
        StorageInvalid: At the end the contents differ, because agents wrote meanwhile.
        StorageUnavailable: One of them cannot be reached. Run the copy again.
    """
    if source.place == target.place:
        raise InvalidArgument(f"{_named(source)!r} cannot be copied into itself", remedy="name another target")
    found = await _look(source)
    if not found.versions:
        raise InvalidArgument(
            f"there is no storage {found.name!r} to copy from", remedy="name a home or a database in use"
        )
    known = (*SCHEMAS, *installed_schemas(found.versions, found.name))
    schemas = schemas_at(found.versions, known, database=found.name)  # both ends get the same tables
    _check_made(found, schemas)
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
    """Remove the rows or the file of an interrupted copy, so that the place is empty again.

    Raises:
        InvalidArgument: No copy into it was started, or the copy is complete.
        StorageHalfCopied: A copy into it is running.
        StorageUnavailable: It cannot be removed.
    """
    await _incomplete_copy(storage)
    async with copying_alone(storage):
        found = await _incomplete_copy(storage)  # checked again, now that no other run can finish the copy meanwhile
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


async def _compared(part: Part, source: Database, target: Database) -> PartDigest:
    """Return what both ends hold of a part.

    Raises:
        StorageInvalid: They differ.
    """
    old, new = await PartDigest.of(part, source), await PartDigest.of(part, target)
    if old != new:
        raise StorageInvalid(
            f"the rows of {part.name!r} differ: {target.name!r} has {new.rows}, {source.name!r} has {old.rows}",
            remedy="stop the agents on both ends, and run the copy again",
        )
    return new


def _named(storage: Storage) -> str:
    return str(storage.place).encode(errors="backslashreplace").decode()  # a folder's name need not be UTF-8


async def _look(storage: Storage) -> _Place:
    """Read the contents of a place; a missing file is not created."""
    name = _named(storage)
    if storage.url is None and not storage.database.exists():
        return _Place(name)

    def work(transaction: Transaction) -> _Place:
        there = {table for (table,) in transaction.execute(_IN_FILE if storage.url is None else _ON_SERVER)}
        versions = dict(transaction.execute(_VERSIONS)) if "wa_schema" in there else {}
        schemas = (*SCHEMAS, *installed_schemas(versions, name), COPYING)
        ours = ("wa_schema", *(table.name for table in tables_of(schemas)), *CHECKPOINT_TABLES)
        tables = tuple(table for table in ours if table in there)
        filled = [table for table in tables if table not in TABLES_WITH_OWN_ROWS]
        filled = [table for table in filled if transaction.execute(f"SELECT 1 FROM {table} LIMIT 1")]
        known = transaction.execute(_SOURCE) if "wa_copy" in there else []
        return _Place(name, tables, tuple(filled), versions, known[0][0] if known else None, frozenset(there))

    async with aclosing(await Database.open(storage.place, schemas=())) as database:
        return await database.read(work)


def _check_made(place: _Place, schemas: Sequence[Schema]) -> None:
    """Refuse to copy a capability in part: no copy knows the columns of a table that its migrations do not make.

    Raises:
        InvalidArgument: There is such a table.
    """
    made = {table.name.lower() for table in tables_of(schemas)}
    for each in (schema.name.removeprefix(CAPABILITY) for schema in schemas if schema.of_capability):
        for table in sorted(place.there):
            if table.startswith(f"{each}_") and table.lower() not in made:
                raise InvalidArgument(
                    f"{place.name!r} has a table {table!r}, which no migration of the capability {each!r} makes",
                    remedy="add it to `migrations` of the capability, or drop it, so that nothing of it is left behind",
                )


async def _check_idle(database: Database, storage: Storage, schemas: Sequence[Schema]) -> None:
    """Refuse to copy while turns run.

    Raises:
        ThreadBusy: A thread has an owner.
    """
    if EPOCHS.name not in {schema.name for schema in schemas}:
        return
    keys = frozenset(key for (key,) in await database.read(lambda tx: tx.execute(_THREADS)))
    if owned := sorted(await Leases(database, storage.locks).owned(keys)):
        raise ThreadBusy(
            f"{len(owned)} turns run in {_named(storage)!r}, one of them on {owned[0]!r}",
            remedy="wait for them to end, or drain their agents, and copy again",
        )


def _check_target(target: _Place, source: str) -> None:
    """Refuse a target that agents have used, or that holds an interrupted copy of another source.

    Raises:
        InvalidArgument: The target is refused.
    """
    if target.half_copied and target.source not in (None, source):
        raise InvalidArgument(
            f"{target.name!r} holds an incomplete copy of {target.source!r}",
            remedy="finish that copy, or remove it with `worldagent storage drop`",
        )
    if target.filled and not target.half_copied:
        raise InvalidArgument(
            f"{target.name!r} is in use: its table {target.filled[0]!r} has rows",
            remedy="copy into an empty database or home",
        )


async def _incomplete_copy(storage: Storage) -> _Place:
    found = await _look(storage)
    if found.half_copied:
        return found
    raise InvalidArgument(
        f"{found.name!r} does not hold an incomplete copy, so nothing is dropped",
        remedy="remove the home or the database yourself if you do not need it",
    )


def _unlink(storage: Storage) -> None:
    file, remedy = storage.database, "end the process that uses it, or make the home writable"
    with storage_errors(f"{str(file)!r} cannot be removed", remedy=remedy):
        # The database file goes last: until then, the remaining files are still an incomplete copy.
        for suffix in ("-wal", "-shm", ""):
            file.with_name(file.name + suffix).unlink(missing_ok=True)


__all__ = ["Copied", "Progress", "copy_storage", "drop_copy"]
