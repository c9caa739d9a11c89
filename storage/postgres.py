"""`Database` and the locks of threads over a Postgres server: a few threads, each with its own connection.

It needs the extra `postgres`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psycopg
import psycopg.errors
from psycopg.conninfo import conninfo_to_dict

from ..core.clock import uninterrupted
from ..core.errors import HostError, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError
from .database import GIVE_UP_SECONDS, Database
from .home import URL_REMEDY, PostgresAddress
from .locks import HeldLock, Locks
from .schema import RECORD, VERSIONS, Schema, Transaction, outdated_schemas, step_failed, steps_of
from .sqlite import closed, outcome, run_work

T = TypeVar("T")

RETRYABLE_CODES: Final = ("40001", "40P01", "23505")
"""Codes of a transaction that conflicted with another one, was rolled back and can be retried.

`23505` is a key that is there twice: another transaction wrote the row after this one had looked for it, so it looks
again, as it would where one transaction runs at a time."""

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


# --- one connection ---------------------------------------------------------------------------------------------------

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
        self._given_up = False

    @property
    def name(self) -> str:
        """The database's name in errors."""
        return str(self._address)

    def connection(self) -> psycopg.Connection:
        """The connection. It may be broken without this process having noticed.

        Raises:
            psycopg.Error: The server cannot be reached.
            StorageUnavailable: The session was given up.
            InvalidArgument: The address is invalid.
        """
        if not self._given_up and (self._connection is None or self._connection.closed):
            self._connect()
        if self._given_up or self._connection is None:
            raise StorageUnavailable(
                f"database {self.name!r} had not answered when the agent was closed", remedy=_UNREACHABLE_REMEDY
            )
        return self._connection

    def _connect(self) -> None:
        self._connection = psycopg.connect(**arguments(self._address))
        if not self._given_up:  # by another thread meanwhile
            self._connection.execute(_SET)

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

    def give_up(self) -> None:
        """End a statement that another thread waits for, as if the server had closed the connection; make no other."""
        self._given_up = True
        if self._connection is not None:
            interrupt(self._connection)

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


def interrupt(connection: psycopg.Connection) -> None:
    """End what another thread waits for on a connection, as if the server had closed it."""
    with (
        contextlib.suppress(psycopg.Error, OSError),  # it is closed already
        socket.socket(fileno=os.dup(connection.fileno())) as shared,
    ):
        shared.shutdown(socket.SHUT_RDWR)


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


# --- schemas ----------------------------------------------------------------------------------------------------------

_LOCK_NAME: Final = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('worldagent schema', 0))"
_TEXT: Final = re.compile(r"\bTEXT\b")


def bring_up_to_date(session: Session, schemas: Sequence[Schema]) -> None:
    """Bring every schema to its newest version in one transaction. Without schemas, nothing is written.

    Raises:
        SchemaTooNew: The database has a version that this package does not know.
        StorageUnavailable: The database cannot be reached.
        StorageInvalid: It has other tables with the names of the schemas' tables.
        CapabilityFailed: A step of a capability cannot be made; nothing is written.
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
        for number, statement in steps_of(schema, found):
            try:
                connection.execute(_native(statement))
            except psycopg.Error as error:
                state = error.sqlstate or ""
                if not schema.of_capability or state[:2] not in ("0A", "22", "23", "42") or state in _REMEDIES:
                    raise
                # The text of a statement that cannot be run has its names. Other texts can have values.
                detail = (error.diag.message_primary or "") if state.startswith("42") else ""
                failure = step_failed(schema, number, error, f"{detail}, SQLSTATE {state}".removeprefix(", "))
            else:
                continue
            raise failure
        connection.execute(query(RECORD), (schema.name, len(schema.migrations)))


def _native(statement: str) -> bytes:
    # Ids must sort by their bytes, as in SQLite, whatever the server's locale is.
    return query(_TEXT.sub('TEXT COLLATE "C"', statement).removesuffix("WITHOUT ROWID"))


# --- locks ------------------------------------------------------------------------------------------------------------

_TRY: Final = "SELECT pg_try_advisory_lock(%s)"
_TAKEN: Final = """SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
                   WHERE locktype='advisory' AND objsubid=1 AND granted
                     AND database=(SELECT oid FROM pg_database WHERE datname=current_database())"""
_UNLOCK: Final = "SELECT pg_advisory_unlock(%s)"


class AdvisoryLocks:
    """All locks of one agent, on one separate connection.

    If that connection breaks, all locks are released. The epoch then refuses writes of an owner that has not noticed.

    Args:
        address: The address of the database.
        on_cancel: Is called when a caller that waits for the server is cancelled.

    Attributes:
        session: The connection.
    """

    def __init__(self, address: PostgresAddress, *, on_cancel: Callable[[], object] = lambda: None) -> None:
        self.session, self._on_cancel = Session(address), on_cancel
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="worldagent-locks")
        self._closed = False

    async def acquire(self, key: str) -> HeldLock | None:
        """See `Locks.acquire`."""
        if self._closed:
            raise closed(self.session.name)
        number = _number(key)
        taking = self._executor.submit(self._take, number)
        try:
            connection = await outcome(taking, on_cancel=self._on_cancel)
        except asyncio.CancelledError:
            if taking.done() and not taking.cancelled() and not taking.exception() and (taken := taking.result()):
                await self.release(number, taken)
            raise
        return None if connection is None else _HeldNumber(self, number, connection)

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """See `Locks.owned`."""
        if self._closed:
            raise closed(self.session.name)
        if not keys:
            return frozenset()
        numbers = {_number(key): key for key in keys}
        taken = await outcome(self._executor.submit(self._taken), on_cancel=self._on_cancel)
        return frozenset(key for number, key in numbers.items() if number in taken)

    async def aclose(self) -> None:
        """Release all locks and close the connection."""
        if not self._closed:
            self._closed = True
            closing = self._executor.submit(self.session.close)
            self._executor.shutdown(wait=False)
            await outcome(closing)
            self._executor.shutdown(wait=True)

    async def release(self, number: int, connection: psycopg.Connection) -> None:
        """Release one lock, unless it was lost with its connection. A cancellation does not interrupt it."""
        if not self._closed:
            await uninterrupted(outcome(self._executor.submit(self._let_go, number, connection)))

    def _take(self, number: int) -> psycopg.Connection | None:
        with self.session.translated():
            connection = self.session.fresh()
            row = connection.execute(_TRY, (number,)).fetchone()
            return connection if row == (True,) else None

    def _taken(self) -> set[int]:
        with self.session.translated():
            return {row[0] for row in self.session.fresh().execute(_TAKEN).fetchall()}

    def _let_go(self, number: int, connection: psycopg.Connection) -> None:
        if connection.closed:
            return
        with contextlib.suppress(psycopg.Error, StorageUnavailable):  # then the server has released it
            connection.execute(_UNLOCK, (number,))


def _number(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)


class _HeldNumber:
    def __init__(self, locks: AdvisoryLocks, number: int, connection: psycopg.Connection) -> None:
        self._locks = locks
        self._number = number
        self._connection = connection

    async def release(self) -> None:
        await self._locks.release(self._number, self._connection)

    def forget(self) -> None:
        """See `HeldLock.forget`. The server keeps no record of a lock that is not held."""


# --- the database -----------------------------------------------------------------------------------------------------

MAX_TRIES: Final = 5
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresDatabase(Database):
    """A database on a Postgres server. Safe to use from several event loops.

    Attributes:
        address: Where it is.
    """

    engine = "postgres"

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.name = str(address)
        self._executor = ThreadPoolExecutor(address.connections, thread_name_prefix="worldagent-postgres")
        self._sessions: list[Session] = []
        self._own = threading.local()
        self._under_way: set[Future[Any]] = set()
        self._locks: list[AdvisoryLocks] = []
        self._closed = self._given_up = False

    @classmethod
    async def at(cls, address: PostgresAddress, *, schemas: Sequence[Schema]) -> Self:
        """See `Database.open`."""
        database = cls(address)
        try:
            await database._submit(lambda session: bring_up_to_date(session, schemas))
        except GeneratorExit:  # the garbage collector closes it, perhaps while a thread pool holds its locks
            raise
        except BaseException:
            await database.aclose()
            raise
        return database

    async def transact(self, work: Callable[[Transaction], T], *, synced: bool = True) -> T:
        """See `Database.transact`. Every transaction is synced, because this process can outlive the server."""
        return await self._submit(lambda session: _with_retries(session, work, _WRITE))

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """See `Database.read`."""
        return await self._submit(lambda session: _with_retries(session, work, _READ))

    async def scrub(self) -> None:
        """See `Database.scrub`."""
        if self._closed:
            raise closed(self.name)

    def locks(self, folder: Path | None) -> Locks:
        """See `Database.locks`; they need no folder."""
        if self._closed:
            raise closed(self.name)
        self._locks.append(locks := AdvisoryLocks(self.address, on_cancel=self._cancelled))
        return locks

    async def aclose(self) -> None:
        """See `Database.aclose`."""
        self._closed = True
        for locks in self._locks:  # which stay there, so that they can be given up meanwhile
            await locks.aclose()
        for future in tuple(self._under_way):
            with contextlib.suppress(Exception):  # the caller of the transaction gets it
                await outcome(future)
        self._executor.shutdown(wait=True)
        while self._sessions:
            self._sessions.pop().close()

    def give_up(self) -> None:
        """See `Database.give_up`. A thread that is connecting notices at the latest after `connect_timeout`."""
        self._given_up = True
        for session in (*self._sessions, *(locks.session for locks in self._locks)):
            session.give_up()

    async def _submit(self, job: Callable[[Session], T]) -> T:
        if self._closed:
            raise closed(self.name)

        def run() -> T:
            session: Session | None = getattr(self._own, "session", None)
            if session is None:
                session = self._own.session = Session(self.address)
                self._sessions.append(session)
                if self._given_up:
                    session.give_up()
            try:
                return job(session)
            except WorldAgentError as error:
                if isinstance(error.__context__, psycopg.Error):
                    error.__context__ = None  # the server's text may hold values
                raise

        future = self._executor.submit(run)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return await outcome(future, on_cancel=self._cancelled)

    def _cancelled(self) -> None:
        if not self.serving:
            asyncio.get_running_loop().call_later(GIVE_UP_SECONDS, self._give_up_unless_serving)

    def _give_up_unless_serving(self) -> None:
        if not self.serving:
            self.give_up()


def _with_retries(session: Session, work: Callable[[Transaction], T], begin: str) -> T:
    """Run `work` in a transaction. Retry if the server rolled it back because of a conflict with another one."""
    for _ in range(MAX_TRIES):
        try:
            return _run_once(session, work, begin)
        except psycopg.Error as error:
            if error.sqlstate not in RETRYABLE_CODES:
                raise
    raise StorageUnavailable(
        f"database {session.name!r} rolled back a transaction {MAX_TRIES} times because of conflicts",
        remedy="try again",
    )


def _run_once(session: Session, work: Callable[[Transaction], T], begin: str) -> T:
    with session.translated(read_only=begin == _READ):
        connection = _begin_transaction(session, begin)
        try:
            result = run_work(work, _PostgresTransaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(session, connection)
            raise
        return result


def _begin_transaction(session: Session, begin: str) -> psycopg.Connection:
    """Begin a transaction. A connection that broke while it was idle is made again."""
    connection = session.connection()
    try:
        connection.execute(query(begin))
    except psycopg.OperationalError:
        session.close()
        connection = session.connection()
        connection.execute(query(begin))
    return connection


def _roll_back(session: Session, connection: psycopg.Connection) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        session.close()


class _PostgresTransaction:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        failure: WorldAgentError | None
        try:
            cursor = self._connection.execute(query(sql), tuple(params))
            return cursor.fetchall() if cursor.description is not None else []
        except (psycopg.DataError, UnicodeEncodeError) as error:
            failure = not_storable(error)
            if failure is None:
                raise
        raise failure  # after the handler, so that it has no context: the original error contains the text

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        return self.execute(f"{sql} FOR UPDATE" if alone else f"{sql} FOR SHARE", params)

    def lock(self, name: str) -> None:
        self.execute(_LOCK_NAME, (f"worldagent {name}",))


# --- notifications ----------------------------------------------------------------------------------------------------


async def notifications(database: Database, channel: str) -> AsyncGenerator[str | None]:
    """Yield the payload of each notification of a channel, on a connection of its own; first None, once it listens.

    Args:
        database: A database on a Postgres server.
        channel: The channel of `pg_notify`.

    Raises:
        StorageUnavailable: The server cannot be reached, or the connection broke.
    """
    assert isinstance(database, PostgresDatabase)
    failure: WorldAgentError | None = None
    try:
        async with await psycopg.AsyncConnection.connect(**arguments(database.address)) as connection:
            await connection.execute(f'LISTEN "{channel}"'.encode())
            yield None
            async for notification in connection.notifies():
                yield notification.payload
    except psycopg.Error as error:
        failure = from_postgres(error, database.name)
    raise failure or StorageUnavailable(
        f"database {database.name!r} cannot be listened to", remedy="connect to the server itself"
    )
