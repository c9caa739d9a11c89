"""The few connections of a saver to Postgres: made when one is needed, tried before it is given, told of when refused.

psycopg's pool keeps those who ask waiting for a server that is down, for its whole time limit; here they are told at
once. Turns and messages have connections of their own (`storage.postgres`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

from ...storage import PostgresAddress
from ...storage.postgres import arguments

Connection = psycopg.AsyncConnection[DictRow]

CONNECTIONS: Final = 4
WAIT: Final = 30.0  # seconds for one that is free


async def connect(address: PostgresAddress) -> Connection:
    """Make a connection in autocommit mode.

    Raises:
        psycopg.Error: The server cannot be reached.
    """
    return await psycopg.AsyncConnection[DictRow].connect(**arguments(address), row_factory=dict_row)


class NoneFree(Exception):
    """All connections were in use for too long."""


class Connections:
    """Up to `CONNECTIONS` connections, each for one at a time.

    Args:
        address: Where the database is.
        first: One that is made already.
    """

    def __init__(self, address: PostgresAddress, first: Connection) -> None:
        self._address = address
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free = [first]
        self._closed = False

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        """A connection that works, for the block.

        Raises:
            NoneFree: All were in use for `WAIT` seconds.
            psycopg.Error: The server cannot be reached.
        """
        got = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT):
                got = await self._slots.acquire()
        if not got:
            raise NoneFree
        try:
            connection = await self._working()
            try:
                yield connection
            finally:
                await self._back(connection)
        finally:
            self._slots.release()

    async def aclose(self) -> None:
        """Close those that nobody uses; the others are closed when they come back."""
        self._closed = True
        while self._free:
            await self._free.pop().close()

    async def _working(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            works = False
            try:
                await connection.execute("SELECT 1")
                works = True
            except psycopg.OperationalError:
                pass  # the server was started again, or cut it, while nobody used it
            finally:
                if not works:  # cancelled, too
                    await connection.close()
            if works:
                return connection
        return await connect(self._address)

    async def _back(self, connection: Connection) -> None:
        if self._closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()
        else:
            self._free.append(connection)


__all__ = ["WAIT", "Connection", "Connections", "NoneFree", "connect"]
