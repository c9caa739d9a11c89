"""The two ends of a copy: what stands at a place, and whether a copy may begin there. Nothing is copied here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...core.errors import InvalidArgument, SchemaTooNew, StorageHalfCopied, ThreadBusy
from ...graphs.copies import CHECKPOINT_TABLES
from ...storage import EPOCHS, Database, Leases, PostgresAddress, Schema, Storage, Transaction
from ...storage.copies import COPYING, tables_of
from ..threads import SCHEMAS

_VERSIONS: Final = "SELECT name, version FROM wa_schema"
_IN_FILE: Final = "SELECT name FROM sqlite_master WHERE type='table'"
_ON_SERVER: Final = "SELECT tablename FROM pg_tables WHERE schemaname=current_schema()"
_KEYS: Final = "SELECT key FROM wa_epoch WHERE key<>''"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands at a place.

    Attributes:
        tables: The names of all tables, those of others as well.
        versions: Which version of each schema.
    """

    tables: frozenset[str] = frozenset()
    versions: Mapping[str, int] | None = None

    @property
    def half_copied(self) -> bool:
        """Whether a copy into it has not come to its end."""
        return self.versions is not None and COPYING.name in self.versions

    @property
    def made(self) -> frozenset[str]:
        """The tables that are ours or LangGraph's."""
        ours = {table.name for table in tables_of((*SCHEMAS, COPYING))}
        return self.tables & {"wa_schema", *ours, *CHECKPOINT_TABLES}


def named(storage: Storage) -> str:
    """Names what is copied from and to, the same each time, for texts and databases; no password is in it."""
    return str(storage.place).encode(errors="backslashreplace").decode()  # a folder's name may be no UTF-8


@contextlib.asynccontextmanager
async def opened(storage: Storage, schemas: Sequence[Schema] = ()) -> AsyncGenerator[Database]:
    """The database of a storage, for the block; without schemas as it stands, whatever that is."""
    database = await Database.open(storage.place, schemas=schemas)
    try:
        yield database
    finally:
        await database.aclose()


async def look(storage: Storage) -> Standing:
    """What stands at a place; a file that is not there is not made."""
    if storage.place == storage.database and not storage.database.exists():
        return Standing()

    def work(transaction: Transaction) -> Standing:
        statement = _ON_SERVER if isinstance(storage.place, PostgresAddress) else _IN_FILE
        tables = frozenset(name for (name,) in transaction.execute(statement))
        versions = dict(transaction.execute(_VERSIONS)) if "wa_schema" in tables else None
        return Standing(tables, versions)

    async with opened(storage) as database:
        return await database.read(work)


def check_source(found: Standing, name: str) -> tuple[Schema, ...]:
    """The schemas of what is copied from, as they were at its versions: both ends get the same tables.

    Raises:
        InvalidArgument: There is nothing to copy.
        StorageHalfCopied: It is half a copy itself.
        SchemaTooNew: It has tables that this package does not know.
    """
    if not found.versions:
        raise InvalidArgument(f"there is no storage {name!r} to copy from", remedy="name a home or a database in use")
    if found.half_copied:
        raise StorageHalfCopied(
            f"a copy into {name!r} was begun and is not finished, so nothing is copied from it",
            remedy="finish that copy first",
        )
    known = {schema.name: len(schema.migrations) for schema in SCHEMAS}
    for schema, version in found.versions.items():
        if version > known.get(schema, 0):
            raise SchemaTooNew(
                f"database {name!r} has version {version} of {schema!r}, and this package knows {known.get(schema, 0)}",
                remedy="copy it with the newer version of this package",
            )
    versions = found.versions
    return tuple(
        Schema(schema.name, schema.migrations[: versions[schema.name]]) for schema in SCHEMAS if schema.name in versions
    )


async def check_idle(database: Database, storage: Storage, schemas: Sequence[Schema]) -> None:
    """Refuse to copy what turns are changing.

    Raises:
        ThreadBusy: A thread has an owner.
    """
    if EPOCHS.name not in {schema.name for schema in schemas}:
        return
    keys = [key for (key,) in await database.read(lambda tx: tx.execute(_KEYS))]
    if owned := sorted(await Leases(database, storage.locks).owned(keys)):
        raise ThreadBusy(
            f"{len(owned)} turns run in {named(storage)!r}, one of them on {owned[0]!r}",
            remedy="let them end, or drain their agents, and copy again",
        )


async def check_unused(storage: Storage) -> None:
    """Refuse to copy into what agents have used; a copy that is not finished may go on.

    Raises:
        InvalidArgument: One of its tables has rows.
    """
    found = await look(storage)
    if found.half_copied or not found.made:
        return  # so that no file is made
    async with opened(storage) as database:
        for table in sorted(found.made - {"wa_schema", "wa_copy", "checkpoint_migrations"}):
            statement = f"SELECT 1 FROM {table} LIMIT 1"
            if await database.read(lambda tx: tx.execute(statement)):  # noqa: B023 -- awaited at once
                raise InvalidArgument(
                    f"{named(storage)!r} is in use: its table {table!r} has rows",
                    remedy="copy into a database or a home that is empty",
                )


__all__ = ["Standing", "check_idle", "check_source", "check_unused", "look", "named", "opened"]
