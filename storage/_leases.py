"""One owner per thread: a queue in this process, a lock between processes, an epoch against late writers (T4).

The lock of a process that dies is freed, kill -9 included (`_locks`), so no lease has a time to live. Where a lock is
lost while its holder lives (a file system that forgets locks, a connection that breaks), the epoch fences:
`Lease.verify` inside the transaction that writes. Not fair between processes: whoever asks first after a release wins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

from ..core.errors import InvalidArgument, LeaseLost, ThreadBusy
from ._database import Database
from ._locks import Held
from ._schema import Schema
from ._transaction import Transaction

EPOCHS = Schema("epochs", (("CREATE TABLE wa_epoch(key TEXT PRIMARY KEY, epoch BIGINT NOT NULL)",),))
_BUMP = "INSERT INTO wa_epoch(key, epoch) VALUES(?, 1) ON CONFLICT(key) DO UPDATE SET epoch=wa_epoch.epoch+1"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for `key`, which lasts until it is released or taken over.

    Attributes:
        key: What is owned.
        epoch: How often `key` has been taken so far; grows with each lease.
    """

    QUERY: ClassVar[str] = "SELECT epoch FROM wa_epoch WHERE key=?"

    key: str
    epoch: int

    def verify(self, transaction: Transaction) -> None:
        """Call first in each transaction that writes under this lease.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        self.check(transaction.hold(self.QUERY, (self.key,)))

    def check(self, rows: Iterable[Sequence[object]]) -> None:
        """As `verify`, for one who has asked `QUERY` of the key inside a transaction of its own.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        if [tuple(row) for row in rows] != [(self.epoch,)]:
            raise LeaseLost(
                f"another owner took {self.key!r} over after epoch {self.epoch}",
                remedy="drop this work and ask again; the thread goes on from its last message",
            )


class Leases:
    """Hands out leases, for keys of any kind.

    Args:
        database: Where epochs are kept; it needs the schema `EPOCHS`.
        folder: Where lock files stand; only a database in a file needs it.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._database = database
        self._locks = database.locks(folder)
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def hold(self, key: str, *, wait: float) -> AsyncGenerator[Lease]:
        """Own `key` inside the `async with`; whoever asks meanwhile waits, in this process first come first served.

        Do not ask for the key again inside: that waits for itself.

        Args:
            key: What to own, not empty.
            wait: How long to wait for another owner, in seconds; 0 asks once.

        Raises:
            ThreadBusy: Another owner kept it for `wait` seconds.
            InvalidArgument: `key` is empty or no text, or `wait` is negative or no number.
            StorageUnavailable: The lock cannot be had, or the epoch not be written.
            AgentClosed: The database is closed.
        """
        _check(key, wait)
        deadline = asyncio.get_running_loop().time() + wait
        async with self._queued(key, wait):
            held = await self._locked(key, deadline, wait)
            try:
                yield Lease(key, await self._database.transact(lambda tx: _bump(tx, key)))
            finally:
                await held.release()

    async def owned(self, keys: Iterable[str]) -> frozenset[str]:
        """Which of `keys` somebody owns now, in this process or another.

        The answer may be out of date at once. In a file, the lock of a key that nobody owns is taken for the moment of
        the look, and whoever asks with no `wait` in that moment finds it busy.

        Raises:
            StorageUnavailable: The locks cannot be looked at.
        """
        asked = frozenset(keys)
        here = frozenset(key for key in asked if (queue := self._queues.get(key)) is not None and queue.locked())
        return here | await self._locks.owned(asked - here)

    @contextlib.asynccontextmanager
    async def _queued(self, key: str, wait: float) -> AsyncGenerator[None]:
        queue = self._queues.setdefault(key, asyncio.Lock())
        arrived = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                arrived = await queue.acquire()
        if not arrived:
            raise _busy(key, wait)
        try:
            yield
        finally:
            queue.release()

    async def _locked(self, key: str, deadline: float, wait: float) -> Held:
        pause = _FIRST_PAUSE
        while (held := await self._locks.acquire(key)) is None:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise _busy(key, wait)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        return held


def _bump(transaction: Transaction, key: str) -> int:
    [(epoch,)] = transaction.execute(_BUMP + " RETURNING epoch", (key,))
    return int(epoch)


def _busy(key: str, wait: float) -> ThreadBusy:
    return ThreadBusy(
        f"{key!r} still has another owner after {wait:g} s", remedy="try again when its turn has ended, or wait longer"
    )


def _check(key: object, wait: object) -> None:
    if not isinstance(key, str) or not key or any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidArgument("key is not a text that UTF-8 can hold", remedy="give a key of one character or more")
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
        raise InvalidArgument(f"wait {wait!r} is not a time", remedy="give wait 0 or more seconds")
