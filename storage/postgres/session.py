"""One connection to Postgres, made on first use and again after it broke. Use it on one thread at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...core.errors import InvalidArgument
from ..address import URL_REMEDY, PostgresAddress
from .failures import from_postgres

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
