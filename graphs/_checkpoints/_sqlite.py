"""LangGraph's saver on SQLite, wrapped so that writes are whole and the thread's owner's."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, Self, TypeVar

import aiosqlite
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from ...core.awaiting import abandoned
from ...core.errors import StorageInvalid
from ...storage import from_sqlite
from ._known import KnownTypes
from ._promises import LEASE, checked, closed, passing, whole

T = TypeVar("T")


class WholeSaver(AsyncSqliteSaver):
    """`AsyncSqliteSaver` whose writes are whole, fenced and fail with typed errors, and whose reads are restricted.

    Whole: a write cut between INSERT and COMMIT would leave a transaction open, and every other connection locked out.
    Fenced: a late writer's checkpoint would be the newest and move the thread's head back (T4).
    """

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        super().__init__(connection, serde=KnownTypes())
        self._path = path
        self._closed = False
        # A read under way on the connection would keep its older snapshot, and a write could not begin on it.
        self._one = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> WholeSaver:
        """Open the checkpoint tables in the database at `path`.

        Raises:
            StorageUnavailable, StorageInvalid: The file cannot be used.
        """
        task = asyncio.current_task()
        connecting = aiosqlite.connect(path, timeout=30)
        # An agent that nobody closed must not keep its process from ending.
        thread: Any = getattr(connecting, "_thread", connecting)
        thread.daemon = True
        connection = await connecting
        try:
            saver = cls(connection, path)
            with saver._translated():
                await saver.setup()
        except BaseException:  # cancelled, too: the connection has a thread
            if not abandoned(task):
                await connection.close()
            raise
        return saver

    async def aclose(self) -> None:
        """Close the connection and join its thread."""
        self._closed = True
        await self.conn.close()

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        get = super().aget_tuple
        try:
            async with self._one:
                with self._translated():
                    return await checked(lambda: get(config), config, str(self._path), sqlite3.Error)
        except StorageInvalid:
            if not self._closed:
                raise
        raise closed(str(self._path))

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """This saver: what it reads is restricted in any case, and a copy would not know when it is closed."""
        return self

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        put = super().aput
        return await self._write(lambda: put(*args, **kwargs))

    async def aput_writes(self, config: Any, writes: Any, *args: Any, **kwargs: Any) -> None:
        put = super().aput_writes
        if not passing(writes):
            await self._write(lambda: put(config, writes, *args, **kwargs))

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        await self._one.acquire()  # cancelled here, nothing is written
        return await whole(self._written(write))

    async def _written(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and let the next one: also where who asked for it was cancelled meanwhile."""
        lease = LEASE.get()
        try:
            if self._closed:
                raise closed(str(self._path))
            with self._translated():
                await self.conn.execute("BEGIN IMMEDIATE")
                try:
                    if lease is not None:
                        lease.check(await self.conn.execute_fetchall(lease.QUERY, (lease.key,)))
                    return await write()
                except BaseException:  # cancelled, too: no transaction stays open
                    await self.conn.rollback()
                    raise
        finally:
            self._one.release()

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes names from a damaged schema
            failure = from_sqlite(error, self._path) if isinstance(error, sqlite3.Error) else None
            raise failure or StorageInvalid(
                f"the checkpoints in {str(self._path)!r} are not as LangGraph keeps them ({error})",
                remedy="restore the file from a copy, move it away, or use another home",
            ) from error
