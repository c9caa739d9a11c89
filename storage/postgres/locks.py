"""Locks of threads on a Postgres server: advisory locks of one session. They are released when its connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psycopg

from ...core.awaiting import uninterrupted
from ...core.errors import StorageUnavailable
from ..address import PostgresAddress
from ..locks import HeldLock
from ..sqlite import closed, outcome
from .session import Session

_TRY: Final = "SELECT pg_try_advisory_lock(%s)"
_TAKEN: Final = """SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
                   WHERE locktype='advisory' AND objsubid=1 AND granted
                     AND database=(SELECT oid FROM pg_database WHERE datname=current_database())"""
_UNLOCK: Final = "SELECT pg_advisory_unlock(%s)"


class AdvisoryLocks:
    """All locks of one agent, on one separate connection.

    If that connection breaks, all locks are released. The epoch then refuses writes of an owner that has not noticed.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._session = Session(address)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="worldagent-locks")
        self._closed = False

    async def acquire(self, key: str) -> HeldLock | None:
        """See `Locks.acquire`."""
        if self._closed:
            raise closed(self._session.name)
        number = _number(key)
        taking = self._executor.submit(self._take, number)
        try:
            connection = await outcome(taking)
        except asyncio.CancelledError:
            if taking.done() and not taking.cancelled() and not taking.exception() and (taken := taking.result()):
                await self.release(number, taken)
            raise
        return None if connection is None else _HeldNumber(self, number, connection)

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """See `Locks.owned`."""
        if self._closed:
            raise closed(self._session.name)
        if not keys:
            return frozenset()
        numbers = {_number(key): key for key in keys}
        taken = await outcome(self._executor.submit(self._taken))
        return frozenset(key for number, key in numbers.items() if number in taken)

    async def aclose(self) -> None:
        """Release all locks and close the connection."""
        if not self._closed:
            self._closed = True
            closing = self._executor.submit(self._session.close)
            self._executor.shutdown(wait=False)
            await outcome(closing)
            self._executor.shutdown(wait=True)

    async def release(self, number: int, connection: psycopg.Connection) -> None:
        """Release one lock, unless it was lost with its connection. A cancellation does not interrupt it."""
        if not self._closed:
            await uninterrupted(outcome(self._executor.submit(self._let_go, number, connection)))

    def _take(self, number: int) -> psycopg.Connection | None:
        with self._session.translated():
            connection = self._session.fresh()
            row = connection.execute(_TRY, (number,)).fetchone()
            return connection if row == (True,) else None

    def _taken(self) -> set[int]:
        with self._session.translated():
            return {row[0] for row in self._session.fresh().execute(_TAKEN).fetchall()}

    def _let_go(self, number: int, connection: psycopg.Connection) -> None:
        if connection.closed:
            return
        with contextlib.suppress(psycopg.Error, StorageUnavailable):  # then the server has released it
            connection.execute(_UNLOCK, (number,))


def _number(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)


class _HeldNumber:
    def __init__(self, locks: AdvisoryLocks, number: int, connection: psycopg.Connection) -> None:
        self._locks = locks
        self._number = number
        self._connection = connection

    async def release(self) -> None:
        await self._locks.release(self._number, self._connection)

    def forget(self) -> None:
        """See `Held.forget`. The server keeps no record of a lock that is not held."""
