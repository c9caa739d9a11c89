"""One SQLite connection on its own thread. Jobs run there one at a time, in the order they came.

A job never spans an await, so no transaction stays open while the event loop does something else.
Other folders use `database` instead of this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from ..core.errors import AgentClosed, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError
from .failures import from_sqlite, is_busy, not_text, schema_mismatch
from .schema import Schema, differs
from .transaction import Transaction

T = TypeVar("T")
Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]
MAX_GROUP: Final = 256  # the most transactions that are committed as one


class Lane:
    """A connection to `path` and its thread, named `name`. A write on a `read_only` one raises SQLite's own error.

    `schemas` are the tables that the file should have. If its tables differ, an SQL error is the file's fault.
    """

    def __init__(self, path: Path, *, name: str, schemas: Sequence[Schema], read_only: bool = False) -> None:
        self._path = path
        self._schemas = schemas
        self._read_only = read_only
        self._waiting: deque[tuple[Callable[[Transaction], Any], Future[Any], bool]] = deque()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._closing: Future[None] | None = None

    async def open(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Call `connect` on the thread, and use the connection that it returns."""

        def job() -> None:
            with self._translated():
                self._connection = connect()
            self._file = self._file_identity()

        await self._submit(job)

    async def run(self, work: Callable[[Transaction], T], *, synced: bool = True) -> T:
        """Run `work` in a transaction: commit if it returns, roll back if it raises.

        A transaction that is not `synced` reaches the disk with the next synced one, or when the system writes it.

        Transactions that wait while another one runs are committed as one. If one of them fails, each runs again on its
        own, so that a failure affects only its own transaction.
        """
        future: Future[T] = Future()
        self._waiting.append((work, future, synced))
        await self._submit(self._drain)  # does nothing if an earlier drain ran this transaction
        return future.result()

    def _drain(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
        results: list[Any] = []
        if len(group) > 1:
            with contextlib.suppress(Exception):
                try:
                    results = self._transacted([work for work, *_ in group], any(synced for *_, synced in group))
                except StorageUnavailable as error:
                    if is_busy(error.__cause__):  # a retry of each would wait for the same process again, one by one
                        for _, future, _ in group:
                            future.set_exception(copy(error))
                        return
                    raise
        for place, (work, future, synced) in enumerate(group):
            try:
                future.set_result(results[place] if results else self._transacted([work], synced)[0])
            except BaseException as error:  # of any type, since it is raised in the waiting caller
                future.set_exception(error)

    def _transacted(self, works: Sequence[Callable[[Transaction], Any]], synced: bool) -> list[Any]:
        connection = self._connection
        assert connection is not None, "call open() before run()"
        if self._file_identity() != self._file:
            # SQLite would keep writing to the removed file, and all that data would be lost when it is closed.
            raise StorageUnavailable(
                f"database {str(self._path)!r} is no longer the file that was opened",
                remedy="put it back and start the agent again",
            )
        if self._read_only:
            with self._translated(), transaction(connection, "BEGIN"):
                return [self._run_work(work, connection) for work in works]
        with self._translated(), _synced(connection, synced), transaction(connection):
            return [self._run_work(work, connection) for work in works]

    def _run_work(self, work: Callable[[Transaction], T], connection: sqlite3.Connection) -> T:
        try:
            return work(_SqliteTransaction(connection, self._path))
        except StopIteration as error:
            cause = error
        # A future cannot hold StopIteration: the awaiting task would wait forever.
        raise RuntimeError("the work of a transaction raised StopIteration") from cause

    async def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` without a transaction."""

        def job() -> T:
            assert self._connection is not None, "call open() before alone()"
            with self._translated():
                return work(self._connection)

        return await self._submit(job)

    async def aclose(self) -> None:
        """Finish queued jobs, close the connection and end the thread. A second call waits for the same end."""
        if self._closing is None:
            self._closing = self._executor.submit(self._close)
            self._executor.shutdown(wait=False)
        await outcome(self._closing)
        self._executor.shutdown(wait=True)

    async def _submit(self, job: Callable[[], T]) -> T:
        if self._closing is not None:
            raise closed(self._path)
        return await outcome(self._executor.submit(job))

    def _file_identity(self) -> tuple[int, int] | None:
        """Device and inode of the file that is at the path now."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if self._read_only and getattr(error, "sqlite_errorname", None) == "SQLITE_READONLY":
                raise
            failure = from_sqlite(error, self._path)
            if failure is None and self._connection is not None:
                failure = schema_error(error, self._connection, self._path, self._schemas)
            if failure is None:
                raise
            raise failure from error
        except UnicodeDecodeError as error:  # SQLite's message quotes a name from a damaged schema
            raise not_text(self._path) from error


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        failure: WorldAgentError
        try:
            return self._connection.execute(sql, tuple(params)).fetchall()
        except UnicodeEncodeError:
            failure = InvalidArgument(
                "a value for the database contains half a surrogate pair", remedy="pass valid Unicode text"
            )
        except sqlite3.OperationalError as error:
            if not str(error).startswith("Could not decode to UTF-8"):  # it has no code
                raise
            failure = not_text(self._path)
        raise failure  # after the handlers, so that it has no context: both errors contain the text

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        return self.execute(sql, params)  # SQLite allows no other write during this transaction


def schema_error(
    error: sqlite3.Error, connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]
) -> StorageInvalid | None:
    """The error of this package if the file's tables are the cause of `error`; None if the statement is."""
    return schema_mismatch(error, path) if differs(connection, path, schemas) else None


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: Begin = "BEGIN IMMEDIATE") -> Generator[None]:
    """Commit at the end of the block, or roll back if it raises."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has already rolled back after some errors, such as a full disk
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _synced(connection: sqlite3.Connection, synced: bool) -> Generator[None]:
    if synced:
        yield
        return
    connection.execute("PRAGMA synchronous=NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous=FULL")


def closed(name: object) -> AgentClosed:
    """The error for using a closed database."""
    return AgentClosed(f"database {str(name)!r} is closed", remedy="use it before it is closed, or open it again")


async def outcome(future: Future[T]) -> T:
    """Await a job of the thread. A cancelled caller also waits for its end, so that no write happens after that."""
    inner = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        while not inner.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({inner})
        if not inner.cancelled():
            inner.exception()  # marks it as retrieved, since the cancelled caller does not read it
        raise
