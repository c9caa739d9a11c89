"""Schemas and their versions: what brings a file up to date, and refuses one from the future (D15)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InvalidArgument, SchemaTooNew, StorageHalfCopied

VERSIONS = "CREATE TABLE IF NOT EXISTS wa_schema(name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
RECORD = "INSERT INTO wa_schema(name, version) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET version=excluded.version"


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one part, as the steps that lead to them.

    Attributes:
        name: The part's name; its version is kept under it in the file.
        migrations: Item `i` holds the statements that lead from version `i` to `i + 1`. Released items never change.
    """

    name: str
    migrations: tuple[tuple[str, ...], ...]


COPYING = Schema(
    "copying",
    (("CREATE TABLE wa_copy(part TEXT PRIMARY KEY, last TEXT, done BIGINT NOT NULL, whole BIGINT NOT NULL)",),),
)
"""The mark of a database that is being copied into: who opens it with schemas, and not with this one, is refused."""


def check_names(schemas: Sequence[Schema]) -> None:
    """Refuse two schemas of one name.

    Raises:
        InvalidArgument: There are two.
    """
    names = [schema.name for schema in schemas]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"schema {name!r} is given twice", remedy="give each schema a name of its own")


def migrate(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> None:
    """Bring every schema to its newest version, inside the transaction that the caller began.

    Raises:
        SchemaTooNew: The file has a version that this package does not know; the caller rolls back.
    """
    connection.execute(VERSIONS)
    for schema, found in pending(connection, path, schemas):
        for statement in (each for migration in schema.migrations[found:] for each in migration):
            connection.execute(statement)
        connection.execute(RECORD, (schema.name, len(schema.migrations)))


def pending(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> list[tuple[Schema, int]]:
    """The schemas that the file has in an older version, or not at all, each with that version; only read.

    Raises:
        SchemaTooNew: The file has a version that this package does not know.
    """
    any_made = connection.execute("SELECT 1 FROM sqlite_master WHERE name='wa_schema'").fetchall()
    rows = connection.execute("SELECT name, version FROM wa_schema").fetchall() if any_made else []
    return older(dict(rows), str(path), schemas)


def older(stored: Mapping[str, int], database: str, schemas: Sequence[Schema]) -> list[tuple[Schema, int]]:
    """The schemas of which a database has an older version than there is, or none, each with that version.

    Raises:
        SchemaTooNew: It has a version or a part that this package does not know.
        StorageHalfCopied: A copy into it has not come to its end.
    """
    if COPYING.name in stored and schemas and COPYING not in schemas:
        raise StorageHalfCopied(
            f"a copy into {database!r} was begun and is not finished",
            remedy="run the same `worldagent storage copy` again, or remove it with `worldagent storage drop`",
        )
    unknown = sorted(stored.keys() - {COPYING.name, *(schema.name for schema in schemas)})
    if unknown and schemas:
        raise SchemaTooNew(
            f"database {database!r} has the part {unknown[0]!r}, which this package does not know",
            remedy="install the newer version of this package, or use another home",
        )
    for schema in schemas:
        found, known = stored.get(schema.name, 0), len(schema.migrations)
        if found > known:
            raise SchemaTooNew(
                f"database {database!r} has version {found} of {schema.name!r}, and this package knows {known}",
                remedy="install the newer version of this package, or use another home",
            )
    versions = [(schema, stored.get(schema.name, 0)) for schema in schemas]
    return [(schema, found) for schema, found in versions if found < len(schema.migrations)]


def differs(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> bool:
    """Whether the file has the tables of `schemas` otherwise than their migrations make them.

    This tells a file that is to blame for an error from a statement that is.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        try:
            migrate(fresh, path, schemas)
            made = _made(fresh)
        except sqlite3.Error:  # the migrations are wrong
            return False
    try:
        return not made <= _made(connection)
    except sqlite3.Error:  # not even the names of its tables can be read
        return True


def _made(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
