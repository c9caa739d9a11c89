"""LangGraph's saver on Postgres, with the same promises as `_sqlite.WholeSaver`. It needs the extra `postgres`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Final, Self, TypeVar

import psycopg
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import DictRow

from ...core.errors import StorageUnavailable
from ...storage import PostgresAddress
from ...storage.postgres import from_postgres, not_storable
from ._connections import WAIT, Connection, Connections, NoneFree, connect
from ._known import KnownTypes
from ._promises import LEASE, checked, closed, passing, whole

T = TypeVar("T")

_PAUSE: Final = 0.05
# Keys of workers begin with their thread's; the indexes that LangGraph makes sort by the server's language.
_INDEX: Final = """CREATE INDEX CONCURRENTLY IF NOT EXISTS wa_checkpoints_thread
                   ON checkpoints(thread_id text_pattern_ops, checkpoint_id)"""
_TAKE: Final = "SELECT pg_try_advisory_lock(hashtextextended('worldagent checkpoints', 0)) AS taken"


class PostgresSaver(AsyncPostgresSaver):
    """`AsyncPostgresSaver` whose writes are whole, fenced and fail with typed errors, and whose reads are restricted.

    Fenced: the row of the lease's epoch is held until the write is committed, so that who takes over comes after it.
    """

    def __init__(self, first: Connection, address: PostgresAddress) -> None:
        super().__init__(first, serde=KnownTypes())  # the base asks `_cursor` for all that it does
        self._connections = Connections(address, first)
        self._name = str(address)
        self._closed = False

    @classmethod
    async def open(cls, address: PostgresAddress) -> Self:
        """Open the checkpoint tables in the database at `address`.

        Raises:
            StorageUnavailable, StorageInvalid: The database cannot be used.
        """
        return cls(await _translated(_set_up(address), str(address)), address)

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._connections.aclose()

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """This saver: what it reads is restricted in any case, and a copy would not know when it is closed."""
        return self

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        get = super().aget_tuple
        return await _translated(checked(lambda: get(config), config, self._name, psycopg.Error), self._name)

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await whole(self._told(super().aput(*args, **kwargs)))

    async def aput_writes(self, config: Any, writes: Any, *args: Any, **kwargs: Any) -> None:
        if not passing(writes):
            await whole(self._told(super().aput_writes(config, writes, *args, **kwargs)))

    async def _told(self, write: Awaitable[T]) -> T:
        return await _translated(write, self._name)

    @contextlib.asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncGenerator[psycopg.AsyncCursor[DictRow]]:
        # The base uses a pipeline where it writes, and nowhere else.
        if self._closed:
            raise closed(self._name)
        lease = LEASE.get() if pipeline else None
        async with (
            self._connections.one() as connection,
            connection.transaction(),
            connection.cursor(binary=True) as cursor,
        ):
            if lease is not None:
                rows = await cursor.execute("SELECT epoch FROM wa_epoch WHERE key=%s FOR SHARE", (lease.key,))
                lease.check([tuple(row.values()) for row in await rows.fetchall()])
            yield cursor


async def _set_up(address: PostgresAddress) -> Connection:
    """Make LangGraph's tables, one process at a time; gives a connection to use them by."""
    async with await connect(address) as connection:
        # No lock that waits: LangGraph makes indexes CONCURRENTLY, which waits for all who wait in a statement.
        while not (await (await connection.execute(_TAKE)).fetchone() or {}).get("taken"):  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(_PAUSE)
        await AsyncPostgresSaver(connection).setup()
        await connection.execute(_INDEX)
    return await connect(address)


async def _translated(work: Awaitable[T], name: str) -> T:
    """Await `work`, which fails with typed errors. No context manager: what that raises has the original as context."""
    failure: Exception | None
    try:
        return await work
    except NoneFree:
        failure = StorageUnavailable(
            f"the connections to {name!r} were all in use for {WAIT:g} s",
            remedy="look at the server's load, or have fewer turns at once",
        )
    except psycopg.Error as error:
        failure = not_storable(error) if isinstance(error, psycopg.DataError) else None
        failure = failure or from_postgres(error, name)
        if failure is None:
            raise
    raise failure  # outside the handler: the server's text may hold values
