"""`Database` over a SQLite file: one connection writes and one reads, each on its own thread (`Lane`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from ..core.errors import AgentClosed, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError
from .database import Database
from .locks import FileLocks, Locks, from_sqlite, from_system, is_busy, not_text, schema_mismatch
from .schema import Schema, Transaction, differs, migrate, pending

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
                f"database {str(self._path)!r} was replaced by another file or removed",
                remedy="put it back and start the agent again",
            )
        if self._read_only:
            with self._translated(), transaction(connection, "BEGIN"):
                return [run_work(work, _SqliteTransaction(connection, self._path)) for work in works]
        with self._translated(), _synced(connection, synced), transaction(connection):
            return [run_work(work, _SqliteTransaction(connection, self._path)) for work in works]

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


def run_work(work: Callable[[Transaction], T], transaction: Transaction) -> T:
    """Run `work`, and replace an exception that a future cannot hold: the awaiting task would wait forever."""
    try:
        return work(transaction)
    except StopIteration as error:
        cause = error
    raise RuntimeError("the work of a transaction raised StopIteration") from cause


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

    def lock(self, name: str) -> None:
        """Do nothing, for the same reason."""


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


async def outcome(future: Future[T], *, on_cancel: Callable[[], object] = lambda: None) -> T:
    """Await a job of the thread. A cancelled caller also waits for its end, so that no write happens after that.

    Args:
        future: The job.
        on_cancel: Is called when the caller is cancelled.
    """
    inner = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        on_cancel()
        while not inner.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({inner})
        if not inner.cancelled():
            inner.exception()  # marks it as retrieved, since the cancelled caller does not read it
        raise


_BUSY_TIMEOUT = 30.0  # seconds that a write waits for another process
_OPEN_TIMEOUT = 5.0  # seconds that opening waits for a process that blocks even reads
MAKING_SECONDS = 1.0  # seconds that another process can take between making the file and writing to it
WAL_RETRY_SECONDS = 0.01
_PAGE_BYTES, _WAL_PAGES = 2048, 2000  # half of SQLite's default page size, and twice the pages before a checkpoint
_OVERWRITE = "PRAGMA secure_delete=ON"  # overwrites deleted data, which not every build of SQLite does by default


class SqliteDatabase(Database):
    """A SQLite file in WAL mode with `synchronous=FULL`: one connection writes, one reads, each on its own thread.

    Safe to use from several event loops and from several processes at once.

    Attributes:
        path: The file.
    """

    path: Path
    engine = "sqlite"

    def __init__(self, path: Path, *, schemas: Sequence[Schema]) -> None:
        self.path = path
        self.name = str(path)
        self._closed = False
        self._writer = Lane(path, name="worldagent-writer", schemas=schemas)
        self._reader = Lane(path, name="worldagent-reader", schemas=schemas, read_only=True)

    @classmethod
    async def at(cls, path: Path, *, schemas: Sequence[Schema], expendable: bool = False) -> Self:
        """Open the file at `path` and bring all `schemas` up to date. A missing file is made with its folder (0700).

        All migrations run in one transaction: all of them are applied, or none.

        Raises:
            InvalidArgument: Two schemas have the same name.
            StorageInvalid: The file is not a SQLite database, was truncated to nothing, or has other tables with the
                names of the schemas' tables.
            SchemaTooNew: A newer version wrote the file; nothing is written (D15).
            StorageUnavailable: Folder or file cannot be made, read or written, or another process blocked reads for 5 s
                or the migration for 30 s.
        """
        database = cls(path, schemas=schemas)

        try:
            await database._writer.open(lambda: _connect_writer(path, schemas, expendable=expendable))
            await database._reader.open(lambda: _connect_reader(path))
        except GeneratorExit:  # the garbage collector closes it, perhaps while a thread pool holds its locks
            raise
        except BaseException:
            await database.aclose()
            raise
        return database

    async def transact(self, work: Callable[[Transaction], T], *, synced: bool = True) -> T:
        """Run `work` in one write transaction on the writer's thread and return what it returns.

        If `work` raises, nothing is written and the error is raised here. If the awaiting task is cancelled, the
        transaction still ends as it would have, and the cancellation is raised after that.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: The disk is full, failing or read-only, or another process blocked the file for 30 s.
            StorageInvalid: The file is damaged, or its tables no longer match the schemas.
        """
        self._check_open()
        return await self._writer.run(work, synced=synced)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot: all that was committed before, and no part of a transaction. It cannot write.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: The disk fails.
            StorageInvalid: The file is damaged, or its tables no longer match the schemas.
        """
        self._check_open()
        return await self._reader.run(work)

    async def scrub(self) -> None:
        """See `Database.scrub`."""
        self._check_open()
        await self._writer.alone(lambda connection: _scrub(connection, self.path))

    def locks(self, folder: Path | None) -> Locks:
        """See `Database.locks`."""
        return FileLocks(self.path.parent / "locks" if folder is None else folder)

    async def aclose(self) -> None:
        """Finish running transactions, then close the file and end both threads. Closing again does nothing."""
        self._closed = True
        try:
            await self._reader.aclose()
        except GeneratorExit:  # as in `at`
            raise
        except BaseException:  # cancellation too, since the writer also has a thread to end
            await self._writer.aclose()
            raise
        await self._writer.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.path)


def _connect_writer(path: Path, schemas: Sequence[Schema], *, expendable: bool) -> sqlite3.Connection:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = not path.exists()
        if not expendable:
            _check_not_truncated(path)
    except OSError as error:
        raise from_system(error, path.parent) from error
    connection = sqlite3.connect(path, isolation_level=None, timeout=_OPEN_TIMEOUT)
    try:
        if fresh:
            # By name, not through a new descriptor: closing one drops every lock that SQLite has on the file.
            os.chmod(path, 0o600)
        # Small pages, because a turn changes single rows and each change writes a full page. An existing file keeps its
        # page size.
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        _enter_wal(connection, path)
        connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(_OVERWRITE).fetchall()
        if not fresh and not expendable:
            _check_has_tables(connection, path)
        _bring_up_to_date(connection, path, schemas)
        _wait_up_to(_BUSY_TIMEOUT, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_not_truncated(path: Path) -> None:
    """Refuse an empty file in a home where turns ran. SQLite would treat it as new, and the loss would go unnoticed.

    An interrupted first start leaves an empty file too, but then no turn has run. If another process is making the file
    at this moment, this waits for it.

    Raises:
        StorageInvalid: The file is empty and was in use before.
    """
    deadline = time.monotonic() + MAKING_SECONDS
    while path.exists() and path.stat().st_size == 0 and _was_used(path):
        if time.monotonic() > deadline:
            raise StorageInvalid(
                f"file {str(path)!r} is empty, and this home was used before",
                remedy="restore it from a copy, or delete it to start with an empty database",
            )
        time.sleep(WAL_RETRY_SECONDS)


def _check_has_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file without tables in a home where turns ran: its tables were in the write-ahead log, which is lost.

    A file that has been checkpointed has tables, and SQLite cannot know what else its log had. If another process makes
    the file at this moment, this waits for it.

    Raises:
        StorageInvalid: The file has no tables and was in use before.
    """
    deadline = time.monotonic() + MAKING_SECONDS
    while _has_turns(path) and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
        if time.monotonic() > deadline:
            raise StorageInvalid(
                f"file {str(path)!r} has no tables, and this home was used before: its write-ahead log "
                f"{path.name + '-wal'!r} is lost",
                remedy="put the log back, restore both from a copy, or delete the file to start with an empty database",
            )
        time.sleep(WAL_RETRY_SECONDS)


def _has_turns(path: Path) -> bool:
    """Whether a turn has run in the home. Each makes a lock file and, without the setting `role_key`, `role.key`."""
    return any(path.with_name(mark).exists() for mark in ("role.key", "locks"))


def _was_used(path: Path) -> bool:
    """Whether a turn has run in the home, or the file had a log."""
    log = path.with_name(f"{path.name}-wal")
    return _has_turns(path) or (log.exists() and log.stat().st_size > 0)


def _bring_up_to_date(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> None:
    try:
        if not _migrated_at_once(connection, path, schemas) and pending(connection, path, schemas):
            _wait_up_to(_BUSY_TIMEOUT, connection)
            with transaction(connection):
                migrate(connection, path, schemas)
    except sqlite3.Error as error:
        failure = from_sqlite(error, path) or schema_error(error, connection, path, schemas)
        if failure is None:
            raise
        raise failure from error


def _migrated_at_once(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema]) -> bool:
    """Migrate, unless another process writes. If nothing has to be migrated, the caller need not wait for it."""
    _wait_up_to(0, connection)
    try:
        with transaction(connection):
            migrate(connection, path, schemas)
        return True
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    _wait_up_to(_OPEN_TIMEOUT, connection)
    return False


def _wait_up_to(seconds: float, connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout={seconds * 1000:.0f}")


def _scrub(connection: sqlite3.Connection, path: Path) -> None:
    # VACUUM reuses the buffers of old pages, so deleted data would stay in the new pages unless it is overwritten.
    connection.execute(_OVERWRITE).fetchall()
    connection.execute("VACUUM")  # rewrites all pages, so no page with a deleted row is left
    # While another connection checkpoints, SQLite gives up at once: its busy timeout does not cover this case.
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
        if time.monotonic() > deadline:
            raise StorageUnavailable(
                f"database {str(path)!r} is being read by another process, so its write-ahead log cannot be emptied",
                remedy="end the process that reads, or try again when that is done",
            )
        time.sleep(WAL_RETRY_SECONDS)


def _connect_reader(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only=ON")
    return connection


def _enter_wal(connection: sqlite3.Connection, path: Path) -> None:
    # The switch fails at once while another connection writes to a file that is not in WAL mode yet, for example when
    # two processes make the file at the same time. SQLite's busy timeout does not cover this case.
    deadline = time.monotonic() + _OPEN_TIMEOUT
    while True:
        try:
            [(mode,)] = connection.execute("PRAGMA journal_mode=WAL").fetchall()
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(WAL_RETRY_SECONDS)
    if mode != "wal":
        raise StorageUnavailable(f"database {str(path)!r} cannot use WAL", remedy="put the home on a local disk")
