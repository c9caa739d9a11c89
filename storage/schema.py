"""Schemas and their versions: migrates older databases and refuses newer ones (D15)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from struct import pack, unpack
from typing import Annotated, Any, Final, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from ..core.errors import CapabilityFailed, InvalidArgument, SchemaTooNew, StorageHalfCopied, StorageInvalid
from ..core.validation import describe_failure

T = TypeVar("T")


class Transaction(Protocol):
    """A running transaction. It ends when the function that received it returns, and must not be used after that."""

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with `?` for each of `params` and return all its rows.

        Raises:
            InvalidArgument: A text in `params` contains half a surrogate pair, which UTF-8 cannot encode, or, on
                Postgres, a NUL character.
        """
        ...

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        """Like `execute`, for a SELECT on one table. No other transaction can change its rows before this one ends.

        With `alone`, no other transaction can hold the rows either. This waits for transactions that hold them.
        """
        ...

    def lock(self, name: str) -> None:
        """Wait for transactions that have locked this name. No other one can lock it before this one ends."""
        ...


def columns_of(transaction: Transaction, table: str, *, server: bool) -> frozenset[str]:
    """The columns of a table of the database; empty if there is no such table.

    Args:
        transaction: The transaction.
        table: The table's name, in lower case.
        server: Whether the database is on a Postgres server.
    """
    return frozenset(name for (name,) in transaction.execute(_ON_SERVER if server else _IN_FILE, (table,)))


_IN_FILE: Final = "SELECT name FROM pragma_table_info(?)"
_ON_SERVER: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema=current_schema() AND table_name=?"
)

Moment = Annotated[float, Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970, up to the end of the year 9999."""

_MOMENT: Final = TypeAdapter[float](Moment)
Time = Annotated[datetime, BeforeValidator(lambda given: datetime.fromtimestamp(_MOMENT.validate_python(given), UTC))]
"""A column with such seconds, which is read as a time."""


class Row(BaseModel):
    """Base class of row models. Declare a text column with JSON as `Json[...]`."""

    model_config = ConfigDict(hide_input_in_errors=True)


def read_row(model: type[Row], row: Sequence[Any], *, what: str, database: str) -> dict[str, Any]:
    """Validate a row and return its columns by name, as they are stored; see `checked_row`."""
    checked_row(model, row, what=what, database=database)
    return dict(zip_longest(model.model_fields, row))


def checked_row(kind: type[T], row: Sequence[Any], *, what: str, database: str) -> T:
    """Validate a row and return it as the object that it describes.

    Args:
        kind: A row model or a dataclass; its fields are the columns, in their order.
        row: The values of the columns. Columns that a database of an earlier version lacks at the end are None.
        what: The name of the row, for the error.
        database: The name of its database, for the error.

    Raises:
        StorageInvalid: The row is invalid. The text says which columns are, and never shows their values.
    """
    adapter, columns = _adapter(kind)  # type: ignore[arg-type]  # mypy does not see that classes are hashable
    try:
        made: T = adapter.validate_python(dict(zip_longest(columns, row)))
        return made
    except ValidationError as failure:
        problems = describe_failure(failure)
    raise StorageInvalid(
        f"{what[:300]} in {database!r} cannot be read: {problems[:1000]}",
        remedy="restore the database from a copy, or continue on another thread",
    )


@lru_cache(maxsize=64)
def _adapter(kind: type[Any]) -> tuple[TypeAdapter[Any], tuple[str, ...]]:
    fields = kind.model_fields if issubclass(kind, Row) else kind.__dataclass_fields__
    return TypeAdapter(kind), tuple(fields)  # made on first use, because that takes milliseconds


def portions(ids: Sequence[T], most: int = 500) -> Iterator[tuple[str, Sequence[T]]]:
    """Split ids into portions of at most `most`, each with the question marks for a statement."""
    for start in range(0, len(ids), most):
        some = ids[start : start + most]
        yield ", ".join("?" * len(some)), some


def packed(numbers: Sequence[float]) -> bytes:
    """The value of a `REAL[]` column in a SQLite file: float32, the lowest byte first."""
    return pack(f"<{len(numbers)}f", *numbers)


def unpacked(content: bytes) -> list[float]:
    """The numbers of such a value, as Postgres returns them."""
    return list(unpack(f"<{len(content) // 4}f", content))


VERSIONS = "CREATE TABLE IF NOT EXISTS wa_schema(name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
RECORD = "INSERT INTO wa_schema(name, version) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET version=excluded.version"


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one part, as the migrations that make them.

    Attributes:
        name: The part's name. The database stores the version under it.
        migrations: Item `i` has the statements that migrate from version `i` to `i + 1`. Released items never change.
    """

    name: str
    migrations: tuple[tuple[str, ...], ...]

    @property
    def of_capability(self) -> bool:
        """Whether the part is a capability's."""
        return self.name.startswith(CAPABILITY)


CAPABILITY = "capability:"
"""Begins the name of a capability's part, which a process without the capability leaves alone."""

COPYING = Schema(
    "copying",
    (("CREATE TABLE wa_copy(part TEXT PRIMARY KEY, last TEXT, done BIGINT NOT NULL, whole BIGINT NOT NULL)",),),
)
"""The mark of a database with an unfinished copy. Opening it with other schemas, and without this one, fails."""


def check_names(schemas: Sequence[Schema]) -> None:
    """Refuse two schemas with the same name.

    Raises:
        InvalidArgument: Two schemas have the same name.
    """
    names = [schema.name for schema in schemas]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"schema {name!r} is given twice", remedy="give each schema a different name")


def migrate(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> None:
    """Bring every schema to its newest version, inside the transaction that the caller began.

    Raises:
        SchemaTooNew: The file has a version that this package does not know; the caller rolls back.
        CapabilityFailed: A step of a capability cannot be made; the caller rolls back.
    """
    connection.execute(VERSIONS)
    for schema, found in pending(connection, path, schemas):
        for number, statement in steps_of(schema, found):
            try:
                connection.execute(statement)
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if not schema.of_capability or code not in _FAULTS:
                    raise
                # Its text has names of the statement. That of a constraint is left out: a trigger can put values in it.
                failure = step_failed(schema, number, error, str(error) if code == sqlite3.SQLITE_ERROR else "")
            else:
                continue
            raise failure
        connection.execute(RECORD, (schema.name, len(schema.migrations)))


_FAULTS: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
"""The codes of errors whose cause is the statement, and not the file."""


def steps_of(schema: Schema, found: int) -> Iterator[tuple[int, str]]:
    """The statements that a database of version `found` lacks, each with the version that it leads to."""
    for number, migration in enumerate(schema.migrations[found:], found + 1):
        for statement in migration:
            yield number, statement


def step_failed(schema: Schema, number: int, error: Exception, detail: str) -> CapabilityFailed:
    """The error for a step of a capability's migrations that the database refuses."""
    name = schema.name.removeprefix(CAPABILITY)
    what = f"{type(error).__name__}{f' ({detail})' if detail else ''}"
    return CapabilityFailed(
        f"the tables of the capability {name!r} cannot be migrated to version {number}: {what}",
        remedy="start the agent without it; its author must correct the step, or rename a table whose name is taken",
    )


def pending(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> list[tuple[Schema, int]]:
    """The schemas that need a migration, each with its version in the file, 0 if it is missing. It only reads.

    Raises:
        SchemaTooNew: The file has a version that this package does not know.
    """
    return outdated_schemas(stored_versions(connection), str(path), schemas)


def stored_versions(connection: sqlite3.Connection) -> dict[str, int]:
    """The versions of the schemas that a file has, by name. It only reads."""
    any_made = connection.execute("SELECT 1 FROM sqlite_master WHERE name='wa_schema'").fetchall()
    return dict(connection.execute("SELECT name, version FROM wa_schema").fetchall()) if any_made else {}


def outdated_schemas(stored: Mapping[str, int], database: str, schemas: Sequence[Schema]) -> list[tuple[Schema, int]]:
    """The schemas that a database has in an older version, or not at all, each with its version there.

    Raises:
        SchemaTooNew: It has a version or a part that this package does not know.
        StorageHalfCopied: A copy into it is not finished.
    """
    if COPYING.name in stored and schemas and COPYING not in schemas:
        raise StorageHalfCopied(
            f"a copy into {database!r} was begun and is not finished",
            remedy="run the same `worldagent storage copy` again, or remove it with `worldagent storage drop`",
        )
    unknown = sorted(
        name
        for name in stored.keys() - {COPYING.name, *(schema.name for schema in schemas)}
        if not name.startswith(CAPABILITY)
    )
    if unknown and schemas:
        raise SchemaTooNew(
            f"database {database!r} has the part {unknown[0]!r}, which this package does not know",
            remedy="install the newer version of this package, or use another home",
        )
    for schema in schemas:
        found, known = stored.get(schema.name, 0), len(schema.migrations)
        if found > known:
            raise SchemaTooNew(
                f"database {database!r} has version {found} of {schema.name!r}, but this package knows only {known}",
                remedy="install the newer version of this package, or use another home",
            )
    versions = [(schema, stored.get(schema.name, 0)) for schema in schemas]
    return [(schema, found) for schema, found in versions if found < len(schema.migrations)]


def differs(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> bool:
    """Whether the file's tables differ from what the migrations of `schemas` make.

    If they do, the file is the cause of an SQL error; otherwise the statement is.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        try:
            migrate(fresh, path, schemas)
            made = _objects_of(fresh)
        except (sqlite3.Error, CapabilityFailed):  # the migrations themselves are wrong
            return False
    try:
        return not made <= _objects_of(connection)
    except sqlite3.Error:  # the names of its tables cannot be read
        return True


def _objects_of(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
