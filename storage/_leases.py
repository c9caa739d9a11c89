"""One owner per thread: a queue in this process, a lock between processes, an epoch against late writers (T4).

The lock of a process that dies is freed, kill -9 included (`_locks`), so no lease has a time to live. Where a lock is
lost while its holder lives (a file system that forgets locks, a connection that breaks), the epoch fences:
`Lease.verify` inside the transaction that writes. Between processes whoever asks first after a release wins; one in
which many wait lets others in after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from ..core.awaiting import abandoned
from ..core.errors import InvalidArgument, LeaseLost, ThreadBusy
from ._database import Database
from ._locks import Held
from ._schema import Schema
from ._transaction import Transaction

EPOCHS = Schema("epochs", (("CREATE TABLE wa_epoch(key TEXT PRIMARY KEY, epoch BIGINT NOT NULL)",),))
# A key that was retired begins above its old epochs; one row for all such keys has the highest. No lease has its key.
_RETIRED = ""
_HIGHEST = f"COALESCE((SELECT epoch FROM wa_epoch WHERE key='{_RETIRED}'), 0)"
_BUMP = f"""INSERT INTO wa_epoch(key, epoch)
            VALUES(?, 1 + {_HIGHEST})
            ON CONFLICT(key) DO UPDATE SET epoch=wa_epoch.epoch+1 RETURNING epoch"""
_RAISE = f"""INSERT INTO wa_epoch(key, epoch) VALUES('{_RETIRED}', ?) ON CONFLICT(key) DO UPDATE
             SET epoch=CASE WHEN excluded.epoch > wa_epoch.epoch THEN excluded.epoch ELSE wa_epoch.epoch END"""
_EPOCH = "SELECT epoch FROM wa_epoch WHERE key=?"
_DELETE = "DELETE FROM wa_epoch WHERE key=?"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
_LONGEST_RUN = 1.0  # seconds that those who wait in one process take a key one after the other
_BREAK = 3 * _LONGEST_PAUSE


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for `key`, which lasts until it is released or taken over.

    Attributes:
        key: What is owned.
        epoch: How often `key` has been taken so far; grows with each lease.
    """

    key: str
    epoch: int

    def verify(self, transaction: Transaction) -> None:
        """Call first in each transaction that writes under this lease.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        if [tuple(row) for row in transaction.hold(_EPOCH, (self.key,))] != [(self.epoch,)]:
            raise LeaseLost(
                f"another owner took {self.key!r} over after epoch {self.epoch}",
                remedy="drop this work and ask again; the thread goes on from its last message",
            )

    def forget(self, transaction: Transaction) -> None:
        """Verify, and leave no trace of a key that nobody owned before; the last that is written under this lease.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        self.verify(transaction)
        # A later epoch stays: an owner from before, who does not know of its end, must not meet its own one again.
        transaction.execute(f"{_DELETE} AND epoch=1 + {_HIGHEST}", (self.key,))

    def retire(self, transaction: Transaction) -> None:
        """Forget the key, in the transaction that removes what it owns.

        Whoever asks for it later gets a higher epoch all the same, so late writers of before stay refused.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        self.verify(transaction)
        transaction.execute(_RAISE, (self.epoch,))
        transaction.execute(_DELETE, (self.key,))


class _Queue(asyncio.Lock):
    """Who in this process asks for one key.

    The next one in the queue is there before any other process looks again, so without a break those would never come
    to it while the queue is not empty.
    """

    def __init__(self) -> None:
        super().__init__()
        self._askers = 0
        self._since = 0.0

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Stand in the queue for the block."""
        if self._askers == 0:
            self._since = time.monotonic()
        self._askers += 1
        try:
            yield
        finally:
            self._askers -= 1

    async def let_others_in(self) -> None:
        """Wait until other processes have looked, where the queue has not been empty for long."""
        if time.monotonic() - self._since > _LONGEST_RUN:
            await asyncio.sleep(_BREAK)
            self._since = time.monotonic()


class Leases:
    """Hands out leases, for keys of any kind.

    Args:
        database: Where epochs are kept; it needs the schema `EPOCHS`.
        folder: Where lock files stand; only a database in a file needs it.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._database = database
        self._locks = database.locks(folder)
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def hold(self, key: str, *, wait: float, last: bool = False) -> AsyncGenerator[Lease]:
        """Own `key` inside the `async with`; whoever asks meanwhile waits, in this process first come first served.

        Do not ask for the key again inside: that waits for itself.

        Args:
            key: What to own, not empty.
            wait: How long to wait for another owner, in seconds; 0 asks once.
            last: Whether no file of the lock is left once the block has come to its end; the lease is to be retired in
                it.

        Raises:
            ThreadBusy: Another owner kept it for `wait` seconds.
            InvalidArgument: `key` is empty or no text, or `wait` is negative or no number.
            StorageUnavailable: The lock cannot be had, or the epoch not be written.
            AgentClosed: The database is closed.
        """
        _check(key, wait)
        deadline = asyncio.get_running_loop().time() + wait
        async with self._queued(key, wait):
            held, task, dropped = await self._locked(key, deadline, wait), asyncio.current_task(), False
            try:
                yield Lease(key, await self._database.transact(lambda tx: _bump(tx, key)))
                if last:
                    held.forget()
            except BaseException:  # not by name: whatever it is goes on
                dropped = abandoned(task)  # then the lock goes with the file or the connection that it is on
                raise
            finally:
                if not dropped:
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
        queue = self._queues.setdefault(key, _Queue())
        with queue.asking():
            arrived = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    arrived = await queue.acquire()
            if not arrived:
                raise _busy(key, wait)
            try:
                await queue.let_others_in()
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
    [(epoch,)] = transaction.execute(_BUMP, (key,))
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
