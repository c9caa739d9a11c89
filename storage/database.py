"""The database of an agent: open, transact, read, close. Callers pass the schemas of its tables.

The two engines are in `sqlite` and `postgres`. The locks that give a thread one owner are in `locks`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from ..core.errors import MissingExtra
from .home import PostgresAddress
from .locks import Locks
from .schema import Schema, Transaction, check_names, portions

if TYPE_CHECKING:
    from .postgres import PostgresDatabase

T = TypeVar("T")

GIVE_UP_SECONDS: Final = 5.0
"""Seconds that a server gets for the last transactions of an agent that was drained."""


@contextlib.contextmanager
def given_up_after(seconds: float, give_up: Callable[[], object]) -> Generator[None]:
    """Call `give_up` unless the block ends within `seconds` and `GIVE_UP_SECONDS`; also after a cancellation."""
    timer = asyncio.get_running_loop().call_later(seconds + GIVE_UP_SECONDS, give_up)
    yield
    timer.cancel()


class Database(ABC):
    """An open database; `open` makes one. Both engines behave the same, except for errors in SQL statements.

    Attributes:
        name: Its name in errors, without a password.
        engine: Which engine it is.
        serving: Whether an open agent uses it. While an agent opens, and in a command, a caller that is cancelled is
            the only one, so the database is given up `GIVE_UP_SECONDS` later.
    """

    name: str
    engine: ClassVar[Literal["sqlite", "postgres"]]
    serving: bool = False

    @staticmethod
    async def open(place: Path | PostgresAddress, *, schemas: Sequence[Schema], expendable: bool = False) -> Database:
        """Open the database at `place` and bring all `schemas` up to date.

        All migrations run in one transaction: all of them are applied, or none.

        Args:
            place: A SQLite file, which is made with its folder (0700) if it is missing, or the address of a Postgres
                database.
            schemas: The tables it must have.
            expendable: Whether an empty file in a used home is treated as new. Set it if the data can be lost.

        Raises:
            InvalidArgument: Two schemas have the same name.
            MissingExtra: The place is a Postgres database and the extra `postgres` is not installed.
            StorageInvalid: The file is not a SQLite database or was truncated to nothing, or it has other tables with
                the names of the schemas' tables.
            SchemaTooNew: A newer version wrote the database; nothing is written (D15).
            StorageUnavailable: Folder or file cannot be made, read or written; or another process blocked reads for 5 s
                or the migration for 30 s; or the server cannot be reached.
        """
        check_names(schemas)
        if isinstance(place, PostgresAddress):
            return await _postgres().at(place, schemas=schemas)
        from .sqlite import SqliteDatabase  # imported here because each engine imports this module

        return await SqliteDatabase.at(place, schemas=schemas, expendable=expendable)

    @abstractmethod
    async def transact(self, work: Callable[[Transaction], T], *, synced: bool = True) -> T:
        """Run `work` in one write transaction and return what it returns.

        If `work` raises, nothing is written and the error is raised here. If the awaiting task is cancelled, the
        transaction still ends as it would have, and the cancellation is raised after that. `work` runs on another
        thread. It can run again from the start if the server asks for that, so it must change nothing but the database.
        SQLite runs one transaction at a time. Postgres runs several (READ COMMITTED), and rows that `Transaction.hold`
        read do not change.

        Args:
            work: Reads and writes in the transaction.
            synced: Whether the data survives a power failure once this returns. A transaction that is not synced can be
                lost in a power failure, but not when only the process dies. It is on disk before any later synced one.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: It cannot be reached, is full, failing or read-only, or was locked for 30 s.
            StorageInvalid: It is damaged, or its tables no longer match the schemas.
        """

    @abstractmethod
    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot: all that was committed before, and no part of a transaction. It cannot write.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: It cannot be reached, or it fails.
            StorageInvalid: It is damaged, or its tables no longer match the schemas.
        """

    async def find(self, statement: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Run a SELECT for each of some ids, on one snapshot. Without ids nothing is read.

        Args:
            statement: The statement, with `{}` in place of the question marks.
            ids: The ids.

        Raises:
            AgentClosed, StorageUnavailable, StorageInvalid: As for `read`.
        """

        def work(transaction: Transaction) -> list[tuple[Any, ...]]:
            return [row for marks, some in portions(ids) for row in transaction.execute(statement.format(marks), some)]

        return await self.read(work) if ids else []

    @abstractmethod
    async def scrub(self) -> None:
        """Remove deleted data from all files of the database, and free its space.

        SQLite rewrites the complete file, which takes longer for a larger file. Reads continue and writes wait. On
        Postgres this does nothing, because the server does it.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: Another process blocked the file for 30 s, or the disk fails.
        """

    @abstractmethod
    def locks(self, folder: Path | None) -> Locks:
        """Locks between the processes that use this database. Lock files, if any, are in `folder`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish running transactions, then close the database. Closing again does nothing."""

    def give_up(self) -> None:  # noqa: B027 -- what only a server needs
        """Let running and later transactions fail with `StorageUnavailable` if they wait for a server.

        SQLite has none: its transactions end by themselves.
        """

    @contextlib.contextmanager
    def given_up_after(self, seconds: float) -> Generator[None]:
        """Give up the database unless the block ends within `seconds` and `GIVE_UP_SECONDS`; also after a cancellation.

        A server that takes bytes and answers nothing would otherwise hold up the end of the process for ever.

        Args:
            seconds: Seconds that the work of the block gets to finish.
        """
        with given_up_after(seconds, self.give_up):
            yield


def _postgres() -> type[PostgresDatabase]:
    with contextlib.suppress(ImportError):
        from .postgres import PostgresDatabase

        return PostgresDatabase
    raise MissingExtra(
        "a Postgres url needs the extra 'postgres', which is not installed",
        remedy="run pip install 'worldagent[postgres]', or leave the url out",
    )
