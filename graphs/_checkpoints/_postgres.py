"""LangGraph's saver on Postgres, with the same promises as `_sqlite.WholeSaver`. It needs the extra `postgres`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Generator
from typing import Any, Final, Self, TypeVar

import psycopg
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from ...core.errors import StorageUnavailable
from ...storage import PostgresAddress
from ...storage.postgres import arguments, from_postgres
from ._known import KnownTypes
from ._promises import LEASE, checked, closed, whole

T = TypeVar("T")
Connection = psycopg.AsyncConnection[DictRow]

_CONNECTIONS: Final = 4
_WAIT: Final = 30.0  # seconds for a connection
_PAUSE: Final = 0.05
_TAKE: Final = "SELECT pg_try_advisory_lock(hashtextextended('worldagent checkpoints', 0)) AS taken"


class PostgresSaver(AsyncPostgresSaver):
    """`AsyncPostgresSaver` whose writes are whole, fenced and fail with typed errors, and whose reads are restricted.

    Fenced: the row of the lease's epoch is held until the write is committed, so that who takes over comes after it.
    """

    def __init__(self, pool: AsyncConnectionPool[Connection], name: str) -> None:
        super().__init__(pool, serde=KnownTypes())
        self._pool = pool
        self._name = name
        self._closed = False

    @classmethod
    async def open(cls, address: PostgresAddress) -> Self:
        """Open the checkpoint tables in the database at `address`.

        Raises:
            StorageUnavailable, StorageInvalid: The database cannot be used.
        """
        with _translated(str(address)):
            await _set_up(address)
        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            kwargs={**arguments(address), "row_factory": dict_row},
            connection_class=psycopg.AsyncConnection[DictRow],
            min_size=1,
            max_size=_CONNECTIONS,
            open=False,
            timeout=_WAIT,
            check=_works,
            name="worldagent-checkpoints",
        )
        await pool.open()
        return cls(pool, str(address))

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._pool.close()

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """This saver: what it reads is restricted in any case, and a copy would not know when it is closed."""
        return self

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        get = super().aget_tuple
        with _translated(self._name):
            return await checked(lambda: get(config), config, self._name, psycopg.Error)

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await whole(self._told(super().aput(*args, **kwargs)))

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        await whole(self._told(super().aput_writes(*args, **kwargs)))

    async def _told(self, write: Awaitable[T]) -> T:
        with _translated(self._name):
            return await write

    @contextlib.asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncGenerator[psycopg.AsyncCursor[DictRow]]:
        # The base uses a pipeline where it writes, and nowhere else.
        if self._closed:
            raise closed(self._name)
        lease = LEASE.get() if pipeline else None
        async with (
            self._pool.connection() as connection,
            connection.transaction(),
            connection.cursor(binary=True) as cursor,
        ):
            if lease is not None:
                rows = await cursor.execute("SELECT epoch FROM wa_epoch WHERE key=%s FOR SHARE", (lease.key,))
                lease.check([tuple(row.values()) for row in await rows.fetchall()])
            yield cursor


async def _works(connection: Connection) -> None:
    await connection.execute("SELECT 1")


async def _set_up(address: PostgresAddress) -> None:
    """Make LangGraph's tables, one process at a time."""
    connecting = psycopg.AsyncConnection[DictRow].connect(**arguments(address), row_factory=dict_row)
    async with await connecting as connection:
        # No lock that waits: LangGraph makes indexes CONCURRENTLY, which waits for all who wait in a statement.
        while not (await (await connection.execute(_TAKE)).fetchone() or {}).get("taken"):  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(_PAUSE)
        await AsyncPostgresSaver(connection).setup()


@contextlib.contextmanager
def _translated(name: str) -> Generator[None]:
    failure: Exception | None = None
    try:
        yield
    except (PoolTimeout, PoolClosed):
        failure = StorageUnavailable(
            f"database {name!r} gave no connection within {_WAIT:g} s", remedy="start the server, or look at its load"
        )
    except psycopg.Error as error:
        failure = from_postgres(error, name)
        if failure is None:
            raise
    if failure is not None:
        raise failure  # outside the handler: the server's text may hold values
