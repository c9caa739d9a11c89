"""`Database` over a SQLite file. `lane` has the connection and its thread, `failures` the errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from ..core.errors import StorageInvalid, StorageUnavailable
from .database import Database
from .failures import from_sqlite, from_system, is_busy
from .lane import Lane, closed, schema_error, transaction
from .locks import FileLocks, Locks
from .schema import Schema, migrate, pending
from .transaction import Transaction

T = TypeVar("T")
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
    while _is_empty(path) and _was_used(path):
        if time.monotonic() > deadline:
            raise StorageInvalid(
                f"file {str(path)!r} is empty, and this home was used before",
                remedy="restore it from a copy, or delete it to start with an empty database",
            )
        time.sleep(WAL_RETRY_SECONDS)


def _is_empty(path: Path) -> bool:
    return path.exists() and path.stat().st_size == 0


def _was_used(path: Path) -> bool:
    """Whether a turn has run in the home. Each makes a lock file and, without the setting `role_key`, `role.key`."""
    log = path.with_name(f"{path.name}-wal")
    marks = (path.with_name("role.key"), path.with_name("locks"))
    return any(mark.exists() for mark in marks) or (log.exists() and log.stat().st_size > 0)


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
