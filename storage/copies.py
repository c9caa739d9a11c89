"""Export of all rows of a database, and their import into a database of the same or the other engine.

An import fills an empty database in many transactions. Until the last of them the database has a mark, a row of
`wa_schema`, and cannot be opened for other use. `agent.copying` says which parts an agent has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, Protocol

from ..core.errors import InvalidArgument, StorageHalfCopied
from .database import Database
from .home import PostgresAddress, Storage
from .locks import FileLocks, Locks
from .schema import COPYING, Schema, Transaction, migrate, outdated_schemas, packed, unpacked

BATCH: Final = 200  # rows; one of them may be a long message
BLOCK: Final = 50_000  # keys of rows
_VALUES: Final = 900  # in one statement; some builds of SQLite accept at most 999
_LOCK: Final = "storage copy"  # never the key of a thread, which contains a slash
_MADE: Final = """SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name<>'wa_schema'
                  ORDER BY name"""
_DEPTH: Final = "depth"
"""The column that sorts rows after those rows of the same table that they refer to."""

_MARKED: Final = "SELECT version FROM wa_schema WHERE name=?"
_RUN: Final = "SELECT done FROM wa_copy WHERE part=''"
_BEGIN: Final = "INSERT INTO wa_copy(part, last, done, whole) VALUES('', ?, ?, 0)"

Row = tuple[Any, ...]
Statements = Iterable[tuple[str, Sequence[object]]]


class Part(Protocol):
    """A part of a database to copy: a table, or the checkpoints, which each engine stores differently."""

    @property
    def name(self) -> str:
        """Its name: the name of the table that has a row for each item."""
        ...

    def batches(self, database: Database) -> AsyncGenerator[Sequence[Any]]:
        """Export all items in batches. An item comes after the items that it refers to."""
        ...

    def statements(self, batch: Sequence[Any]) -> Statements:
        """Import a batch: the statements that write it into a database that does not have it."""
        ...

    def text(self, item: Any) -> str:
        """All data of an item as text, the same for both engines."""
        ...


@dataclass(frozen=True, slots=True)
class PartDigest:
    """How much of a part a database has.

    Attributes:
        rows: How many items.
        digest: A digest of all items. It does not depend on their order.
    """

    rows: int
    digest: str

    @staticmethod
    async def of(part: Part, database: Database) -> PartDigest:
        """Read a part of a database and count it."""
        rows = total = 0
        async for batch in part.batches(database):
            rows += len(batch)
            total += sum(int.from_bytes(hashlib.sha256(part.text(item).encode()).digest(), "big") for item in batch)
        return PartDigest(rows, f"{total % (1 << 256):064x}")


@dataclass(frozen=True, slots=True)
class Table:
    """A table that the migrations of a schema make. It is a `Part`.

    Attributes:
        name: Its name.
        columns: Its columns, in the order of the table.
        key: The columns of its primary key.
        order: Columns to sort by, so that each row comes after the rows that it refers to.
        arrays: Its columns of the type `REAL[]`, which are bytes in a SQLite file. A batch has lists.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    arrays: frozenset[str] = frozenset()

    async def batches(self, database: Database) -> AsyncGenerator[Sequence[Row]]:
        """See `Part.batches`."""
        last: Row = ()
        if self.order == self.key:
            while rows := await self._page(database, self.columns, last, BATCH):
                yield rows
                last = self._place(rows[-1])
            return
        # No index has this order, so one query sorts the keys of many batches.
        while block := await self._page(database, self.order, last, BLOCK):
            for begin in range(0, len(block), BATCH):
                yield await self._chosen(database, [place[-1] for place in block[begin : begin + BATCH]])
            last = block[-1]

    def statements(self, batch: Sequence[Row]) -> Statements:
        """See `Part.statements`."""
        columns, width = ", ".join(self.columns), len(self.columns)
        most = max(1, _VALUES // width)
        for begin in range(0, len(batch), most):
            some = batch[begin : begin + most]
            places = ", ".join([f"({', '.join('?' * width)})"] * len(some))
            # If an agent wrote the row here in the meantime, the comparison after the copy finds it.
            statement = f"INSERT INTO {self.name}({columns}) VALUES{places} ON CONFLICT DO NOTHING"
            yield statement, [value for row in some for value in row]

    def text(self, item: Row) -> str:
        """See `Part.text`."""
        return json.dumps(item, default=bytes.hex)

    async def _page(self, database: Database, columns: Sequence[str], last: Row, most: int) -> list[Row]:
        """Columns of the rows after `last`, in the table's order."""
        order = ", ".join(self.order)
        after = f"WHERE ({order}) > ({', '.join('?' * len(last))})" if last else ""
        statement = f"SELECT {', '.join(columns)} FROM {self.name} {after} ORDER BY {order} LIMIT {most}"
        return self._listed(columns, await database.read(lambda tx: tx.execute(statement, last)))

    async def _chosen(self, database: Database, keys: Sequence[object]) -> list[Row]:
        marks = ", ".join("?" * len(keys))
        statement = f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {self.key[0]} IN ({marks})"
        rows = self._listed(self.columns, await database.read(lambda tx: tx.execute(statement, keys)))
        return sorted(rows, key=self._place)

    def _listed(self, columns: Sequence[str], rows: list[Row]) -> list[Row]:
        if not self.arrays:
            return rows
        places = {place for place, column in enumerate(columns) if column in self.arrays}
        return [
            tuple(
                unpacked(value) if place in places and isinstance(value, bytes) else value
                for place, value in enumerate(row)
            )
            for row in rows
        ]

    def _place(self, row: Row) -> Row:
        return tuple(row[self.columns.index(column)] for column in self.order)


def tables_of(schemas: Sequence[Schema]) -> tuple[Table, ...]:
    """The tables of `schemas`, each after the tables that it refers to."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate(fresh, Path("memory"), schemas)
        return tables_in(fresh)


def tables_in(fresh: sqlite3.Connection) -> tuple[Table, ...]:
    """The tables of a database that only migrations have run in, each after the tables that it refers to.

    Raises:
        InvalidArgument: A table cannot be copied as it is declared.
    """
    names = [name for (name,) in fresh.execute(_MADE)]
    refers = {name: _referred(fresh, name) for name in names}
    tables = {name: _table(fresh, name, refers[name]) for name in names}
    try:
        ordered = tuple(TopologicalSorter({name: refers[name] - {name} for name in names}).static_order())
    except CycleError as error:
        raise InvalidArgument(
            f"the tables {', '.join(map(repr, error.args[1]))} refer to each other", remedy="drop one of the references"
        ) from None
    return tuple(tables[name] for name in ordered if name in tables)


def schemas_at(versions: Mapping[str, int], schemas: Sequence[Schema], *, database: str) -> tuple[Schema, ...]:
    """The schemas of a database as they were at its versions.

    Args:
        versions: The database's version of each schema.
        schemas: All schemas that it can have.
        database: The database's name, for errors.

    Raises:
        SchemaTooNew: It has a version or a part that this package does not know.
        StorageHalfCopied: A copy into it is not finished.
    """
    outdated_schemas(versions, database, schemas)
    return tuple(Schema(each.name, each.migrations[: versions[each.name]]) for each in schemas if each.name in versions)


def _referred(connection: sqlite3.Connection, table: str) -> set[str]:
    return {other for (other,) in connection.execute('SELECT "table" FROM pragma_foreign_key_list(?)', (table,))}


def _table(connection: sqlite3.Connection, name: str, refers: set[str]) -> Table:
    rows = connection.execute("SELECT name, pk, type FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    key = tuple(column for column, place, _ in sorted(rows, key=lambda row: row[1]) if place)
    if not key:
        raise InvalidArgument(f"the table {name!r} has no primary key", remedy="declare one, by which it is copied")
    columns = tuple(column for column, _, _ in rows)
    arrays = frozenset(column for column, _, kind in rows if kind == "REAL[]")
    order = (_DEPTH, *key) if name in refers else key
    if order != key and (len(key) > 1 or _DEPTH not in columns):
        raise InvalidArgument(
            f"the table {name!r} refers to itself and has more than one key, or no column {_DEPTH!r}",
            remedy="drop the reference, or give it one key and the column, which is higher than in the row referred to",
        )
    try:
        connection.execute(f"SELECT {', '.join(columns)} FROM {name}")
    except sqlite3.Error:
        pass
    else:
        return Table(name, columns, key, order, arrays)
    raise InvalidArgument(
        f"the table {name!r}, or a column of it, has a name that needs quotes",
        remedy="use letters, digits and _, and no word of SQL",
    )


class Import:
    """One run that fills a database. Open the database with the schema `COPYING`, which sets the mark.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run = secrets.randbits(62)

    async def begin(self, source: str, *, clear: Sequence[str]) -> None:
        """Begin, so that an earlier run can write nothing more.

        Args:
            source: The name of the database that is copied.
            clear: The tables that an earlier run may have filled. A table comes after those that refer to it.
        """

        def work(transaction: Transaction) -> None:
            for table in ("wa_copy", *clear):
                transaction.execute(f"DELETE FROM {table}")
            transaction.execute(_BEGIN, (source, self._run))

        await self._database.transact(work)

    async def write(self, statements: Statements) -> None:
        """Write a batch.

        Raises:
            StorageHalfCopied: Another run has begun or finished since, or the copy was removed.
        """
        made = list(statements)  # the transaction can run more than once
        if self._database.engine == "sqlite":
            made = [(sql, [packed(each) if isinstance(each, list) else each for each in given]) for sql, given in made]

        def work(transaction: Transaction) -> None:
            marked = transaction.hold(_MARKED, (COPYING.name,))
            if not marked or transaction.hold(_RUN) != [(self._run,)]:
                raise StorageHalfCopied(
                    f"another run has taken over the copy into {self._database.name!r}",
                    remedy="wait for the other run; this one has stopped",
                )
            for sql, params in made:
                transaction.execute(sql, params)

        await self._database.transact(work)

    async def finish(self) -> None:
        """Remove the mark, so that the database can be opened for other use.

        Raises:
            StorageHalfCopied: As for `write`.
        """
        await self.write([("DELETE FROM wa_schema WHERE name=?", (COPYING.name,)), ("DROP TABLE wa_copy", ())])


@contextlib.asynccontextmanager
async def copying_alone(target: Storage) -> AsyncGenerator[None]:
    """Lock the target against every other run for the block; a missing home is made.

    The lock is released when the process dies.

    Raises:
        StorageHalfCopied: Another run is copying into it.
        StorageUnavailable: It cannot be locked.
    """
    async with contextlib.AsyncExitStack() as stack:
        place = target.place
        locks: Locks = FileLocks(target.resolve())
        if isinstance(place, PostgresAddress):
            database = await Database.open(place, schemas=())
            stack.push_async_callback(database.aclose)
            locks = database.locks(None)
        held = await locks.acquire(_LOCK)
        if held is None:
            raise StorageHalfCopied(
                f"another copy into {str(place)!r} is running", remedy="wait until it ends or stop it, then try again"
            )
        stack.push_async_callback(held.release)
        stack.callback(held.forget)
        yield
