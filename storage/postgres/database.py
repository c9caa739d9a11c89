"""`Database` over a Postgres server: a few threads, each with its own connection."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psycopg

from ...core.awaiting import uninterrupted
from ...core.errors import StorageUnavailable, WorldAgentError
from ..address import PostgresAddress
from ..database import Database
from ..locks import HeldLock, Locks
from ..schema import Schema, Transaction
from ..sqlite import closed, outcome
from .session import RETRYABLE_CODES, Session, bring_up_to_date, not_storable, query

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
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._session = Session(address)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="worldagent-locks")
        self._closed = False

    async def acquire(self, key: str) -> HeldLock | None:
        """See `Locks.acquire`."""
        if self._closed:
            raise closed(self._session.name)
        number = _number(key)
        taking = self._executor.submit(self._take, number)
        try:
            connection = await outcome(taking)
        except asyncio.CancelledError:
            if taking.done() and not taking.cancelled() and not taking.exception() and (taken := taking.result()):
                await self.release(number, taken)
            raise
        return None if connection is None else _HeldNumber(self, number, connection)

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """See `Locks.owned`."""
        if self._closed:
            raise closed(self._session.name)
        if not keys:
            return frozenset()
        numbers = {_number(key): key for key in keys}
        taken = await outcome(self._executor.submit(self._taken))
        return frozenset(key for number, key in numbers.items() if number in taken)

    async def aclose(self) -> None:
        """Release all locks and close the connection."""
        if not self._closed:
            self._closed = True
            closing = self._executor.submit(self._session.close)
            self._executor.shutdown(wait=False)
            await outcome(closing)
            self._executor.shutdown(wait=True)

    async def release(self, number: int, connection: psycopg.Connection) -> None:
        """Release one lock, unless it was lost with its connection. A cancellation does not interrupt it."""
        if not self._closed:
            await uninterrupted(outcome(self._executor.submit(self._let_go, number, connection)))

    def _take(self, number: int) -> psycopg.Connection | None:
        with self._session.translated():
            connection = self._session.fresh()
            row = connection.execute(_TRY, (number,)).fetchone()
            return connection if row == (True,) else None

    def _taken(self) -> set[int]:
        with self._session.translated():
            return {row[0] for row in self._session.fresh().execute(_TAKEN).fetchall()}

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
        """See `Held.forget`. The server keeps no record of a lock that is not held."""


T = TypeVar("T")

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
        self._closed = False

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
        self._locks.append(locks := AdvisoryLocks(self.address))
        return locks

    async def aclose(self) -> None:
        """See `Database.aclose`."""
        self._closed = True
        while self._locks:
            await self._locks.pop().aclose()
        for future in tuple(self._under_way):
            with contextlib.suppress(Exception):  # the caller of the transaction gets it
                await outcome(future)
        self._executor.shutdown(wait=True)
        while self._sessions:
            self._sessions.pop().close()

    async def _submit(self, job: Callable[[Session], T]) -> T:
        if self._closed:
            raise closed(self.name)

        def run() -> T:
            session: Session | None = getattr(self._own, "session", None)
            if session is None:
                session = self._own.session = Session(self.address)
                self._sessions.append(session)
            try:
                return job(session)
            except WorldAgentError as error:
                if isinstance(error.__context__, psycopg.Error):
                    error.__context__ = None  # the server's text may hold values
                raise

        future = self._executor.submit(run)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return await outcome(future)


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
            result = _run_work(work, _PostgresTransaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(session, connection)
            raise
        return result


def _run_work(work: Callable[[Transaction], T], transaction: Transaction) -> T:
    try:
        return work(transaction)
    except StopIteration as error:
        cause = error
    # A future cannot hold StopIteration: the awaiting task would wait forever.
    raise RuntimeError("the work of a transaction raised StopIteration") from cause


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
