"""The one database of an agent: open, transact, read, close. It knows no table; schemas are handed in.

Not the lock that keeps a thread to one owner (`leases`). `sqlite` and `postgres` are the two engines.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from ..core.errors import MissingExtra
from .address import PostgresAddress
from .locks import Locks
from .schema import Schema, check_names
from .transaction import Transaction

if TYPE_CHECKING:
    from .postgres import PostgresDatabase

T = TypeVar("T")


class Database(ABC):
    """A database that is open. Made by `open`; the same on both engines, but for the errors of a programmer.

    Attributes:
        name: Names it in errors; no password is in it.
        engine: What it is.
    """

    name: str
    engine: ClassVar[Literal["sqlite", "postgres"]]

    @staticmethod
    async def open(place: Path | PostgresAddress, *, schemas: Sequence[Schema], expendable: bool = False) -> Database:
        """Open the database at `place` and bring all `schemas` up to date.

        All migrations are one transaction: they are all there, or nothing is written.

        Args:
            place: A SQLite file, made with its folder (0700) where missing; or an address of Postgres.
            schemas: The tables it should have.
            expendable: Whether an empty file is taken as a new one even in a home that was used, since what it held can
                be done without.

        Raises:
            InvalidArgument: Two schemas have one name.
            MissingExtra: Postgres is asked for and its extra is not installed.
            StorageInvalid: The file is something else than a SQLite database, was cut to nothing, or there are other
                tables of those names.
            SchemaTooNew: It was written by a newer version; nothing is written (D15).
            StorageUnavailable: Folder or file cannot be made, read or written, or another process kept it: for 5 s so
                that nobody else could read, or for 30 s so that it could not be brought up to date; or the server is
                out of reach.
        """
        check_names(schemas)
        if isinstance(place, PostgresAddress):
            return await _postgres().at(place, schemas=schemas)
        from .sqlite import SqliteDatabase  # each engine imports this module

        return await SqliteDatabase.at(place, schemas=schemas, expendable=expendable)

    @abstractmethod
    async def transact(self, work: Callable[[Transaction], T], *, synced: bool = True) -> T:
        """Run `work` in one write transaction and return what it returns.

        If `work` raises, nothing is written and the error comes out. If the awaiting task is cancelled, the transaction
        still ends as it would have, and only then does the cancellation go on. `work` runs on another thread, and may
        run again from the start where the server asks for that, so it changes nothing but the database. On SQLite one
        runs at a time; on Postgres several do (READ COMMITTED), and what `Transaction.hold` read stays as it is.

        Args:
            work: What it does.
            synced: Whether it outlives the machine from when this returns; else a loss of power may take it, with this
                process and never without. It is on the disk before any later one that is synced.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: It is out of reach, full, failing or read-only, or somebody kept it locked for 30 s.
            StorageInvalid: It is damaged, or its tables are no longer those of the schemas.
        """

    @abstractmethod
    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot: all that was committed before, and never half a transaction. It cannot write.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: It is out of reach or fails.
            StorageInvalid: It is damaged, or its tables are no longer those of the schemas.
        """

    @abstractmethod
    async def scrub(self) -> None:
        """See that what was deleted is in no file of the database any more, and give its space back.

        A SQLite file is written anew as a whole, which takes time with its size; others read meanwhile, and those who
        write wait. On a server this is the server's own matter, and nothing is done.

        Raises:
            AgentClosed: The database is closed.
            StorageUnavailable: Another process kept the file for 30 s, or the disk fails.
        """

    @abstractmethod
    def locks(self, folder: Path | None) -> Locks:
        """Locks between the processes that use this database; files of them stand in `folder`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what is under way, then let go of the database. Closing again does nothing."""


def _postgres() -> type[PostgresDatabase]:
    with contextlib.suppress(ImportError):
        from .postgres import PostgresDatabase

        return PostgresDatabase
    raise MissingExtra(
        "the database's url is Postgres's, and the extra 'postgres' is not installed",
        remedy="pip install 'worldagent[postgres]', or leave the url out",
    )
