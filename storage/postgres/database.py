"""`Database` over a Postgres server: a few threads, each with its own connection."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psycopg

from ...core.errors import StorageUnavailable, WorldAgentError
from ..address import PostgresAddress
from ..database import Database
from ..locks import Locks
from ..schema import Schema
from ..sqlite import closed, outcome
from ..transaction import Transaction
from .locks import AdvisoryLocks
from .session import RETRYABLE_CODES, Session, bring_up_to_date, not_storable, query

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
