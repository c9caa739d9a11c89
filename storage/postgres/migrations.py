"""Migrates a Postgres database: the same migrations as on SQLite, by one process at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import psycopg

from ..schema import RECORD, VERSIONS, Schema, outdated_schemas
from .session import Session, query

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('worldagent schema', 0))"
_TEXT: Final = re.compile(r"\bTEXT\b")


def bring_up_to_date(session: Session, schemas: Sequence[Schema]) -> None:
    """Bring every schema to its newest version in one transaction. Without schemas, nothing is written.

    Raises:
        SchemaTooNew: The database has a version that this package does not know.
        StorageUnavailable: The database cannot be reached.
        StorageInvalid: It has other tables with the names of the schemas' tables.
    """
    with session.translated():
        connection = session.connection()
        if not schemas:
            return
        with connection.transaction():
            connection.execute(_LOCK)
            connection.execute(_native(VERSIONS))
            _migrate(connection, session.name, schemas)


def _migrate(connection: psycopg.Connection, name: str, schemas: Sequence[Schema]) -> None:
    stored: dict[str, int] = dict(connection.execute("SELECT name, version FROM wa_schema").fetchall())
    for schema, found in outdated_schemas(stored, name, schemas):
        for statement in (each for migration in schema.migrations[found:] for each in migration):
            connection.execute(_native(statement))
        connection.execute(query(RECORD), (schema.name, len(schema.migrations)))


def _native(statement: str) -> bytes:
    # Ids must sort by their bytes, as in SQLite, whatever the server's locale is.
    return query(_TEXT.sub('TEXT COLLATE "C"', statement))
