"""One connection to Postgres, made on first use and again after it broke. Use it on one thread at a time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Sequence
from typing import Any, Final

import psycopg
import psycopg.errors
from psycopg.conninfo import conninfo_to_dict

from ...core.errors import HostError, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError
from ..address import URL_REMEDY, PostgresAddress
from ..schema import RECORD, VERSIONS, Schema, outdated_schemas

RETRYABLE_CODES: Final = ("40001", "40P01")
"""Codes of a transaction that conflicted with another one, was rolled back and can be retried."""

_REMEDIES: Final = {
    "28": "correct user and password in the database's url",
    "3D": "create the database, or correct its name in the url",
    "42501": "give the url's user the right to create and change tables there",
    "25006": "use the url of the server that accepts writes",
    "53100": "free space on the server's disk",
    "53300": "raise the server's limit of connections, or start fewer agents",
    "55P03": "end the session that holds the lock, or try again when it has ended",
    "57": "try again once the server is up",
}
_INVALID: Final = ("42P01", "42703", "42804", "42P07", "42883", "22P02", "XX001", "XX002")
_UNREACHABLE_REMEDY: Final = "start the server, or correct host and port in the database's url"


def from_postgres(error: psycopg.Error, name: str) -> HostError | None:
    """The error of this package for `error`; None if `error` is a programming mistake, which it describes better."""
    code = error.sqlstate
    if code is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        return StorageUnavailable(
            f"database {name!r} cannot be reached, or the connection broke", remedy=_UNREACHABLE_REMEDY
        )
    what = f"{type(error).__name__}, SQLSTATE {code}"
    if code in _INVALID:
        return StorageInvalid(
            f"the tables in database {name!r} differ from those of this package ({what})",
            remedy="use another database, or restore this one from a copy",
        )
    for length in (5, 2):
        if code[:length] in _REMEDIES:
            return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_REMEDIES[code[:length]])
    if code[:2] in ("08", "53", "58"):
        return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_UNREACHABLE_REMEDY)
    return None


def not_storable(error: psycopg.DataError | UnicodeEncodeError) -> WorldAgentError | None:
    """The error for a text that Postgres cannot store; None if `error` has another cause."""
    if isinstance(error, UnicodeEncodeError):
        problem, remedy = "half a surrogate pair", "pass valid Unicode text"
    elif isinstance(error, psycopg.errors.UntranslatableCharacter) or "NUL" in str(error):
        problem, remedy = "a NUL character", "remove it"
    else:
        return None
    return InvalidArgument(f"a value for the database contains {problem}", remedy=remedy)


_DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": 10,  # seconds
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,  # milliseconds without an answer after which the connection counts as broken
    "application_name": "worldagent",
}
_SET: Final = (
    "SET lock_timeout='30s'; SET idle_in_transaction_session_timeout='60s'; SET synchronous_commit=on; "
    # After a minute the server drops a client whose machine is gone, and its locks. By default this takes hours.
    "SET tcp_keepalives_idle=30; SET tcp_keepalives_interval=10; SET tcp_keepalives_count=3"
)


class Session:
    """A connection in autocommit mode.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._connection: psycopg.Connection | None = None

    @property
    def name(self) -> str:
        """The database's name in errors."""
        return str(self._address)

    def connection(self) -> psycopg.Connection:
        """The connection. It may be broken without this process having noticed.

        Raises:
            psycopg.Error: The server cannot be reached.
            InvalidArgument: The address is invalid.
        """
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**arguments(self._address))
            self._connection.execute(_SET)
        return self._connection

    def fresh(self) -> psycopg.Connection:
        """The connection, after a round trip that proves that it works."""
        try:
            self.connection().execute("SELECT 1")
        except psycopg.OperationalError:
            self.close()  # the server was restarted; the connection was idle, so nothing is lost
        return self.connection()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @contextlib.contextmanager
    def translated(self, *, read_only: bool = False) -> Generator[None]:
        """Translate errors that the host must fix. A write in a `read_only` transaction raises Postgres's own error."""
        try:
            yield
        except psycopg.Error as error:
            failure = from_postgres(error, self.name)
            if read_only and isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                raise
            if failure is None:
                raise
        else:
            return
        raise failure  # after the handler, so that it has no context: the server's text can contain values


def arguments(address: PostgresAddress) -> dict[str, Any]:
    """The arguments of `psycopg.connect`: our defaults, overridden by the address."""
    options: dict[str, Any] | None = None
    with contextlib.suppress(psycopg.ProgrammingError):  # its text can contain the password
        options = conninfo_to_dict(address.url)
    if options is None:
        raise InvalidArgument("the database's url has a part that libpq does not know", remedy=URL_REMEDY)
    return {**_DEFAULTS, **options, "autocommit": True}


def query(sql: str) -> bytes:
    """`sql` with psycopg's placeholders instead of `?`. Our statements are constants and contain no other `?`."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


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
