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
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from pathlib import Path
from weakref import WeakValueDictionary

from ..core.awaiting import abandoned
from ..core.errors import InvalidArgument, ThreadBusy
from .database import Database
from .lease import HIGHEST, Known, Lease
from .locks import Held
from .schema import Schema
from .transaction import Transaction

EPOCHS = Schema("epochs", (("CREATE TABLE wa_epoch(key TEXT PRIMARY KEY, epoch BIGINT NOT NULL)",),))
# A key that was retired begins above its old epochs; one row for all such keys has the highest.
_BUMP = f"""INSERT INTO wa_epoch(key, epoch)
            VALUES(?, 1 + {HIGHEST})
            ON CONFLICT(key) DO UPDATE SET epoch=wa_epoch.epoch+1 RETURNING epoch"""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
_LONGEST_RUN = 1.0  # seconds that those who wait in one process take a key one after the other
_BREAK = 3 * _LONGEST_PAUSE
_KNOWN = 256  # keys of which it is remembered what their last owner knew


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
        self._ended: OrderedDict[str, Lease] = OrderedDict()  # the last lease of each key, for what it knows

    @contextlib.asynccontextmanager
    async def hold(
        self, key: str, *, wait: float, last: bool = False, read: Callable[[Transaction], Known] | None = None
    ) -> AsyncGenerator[Lease]:
        """Own `key` inside the `async with`; whoever asks meanwhile waits, in this process first come first served.

        Do not ask for the key again inside: that waits for itself.

        Args:
            key: What to own, not empty.
            wait: How long to wait for another owner, in seconds; 0 asks once.
            last: Whether no file of the lock is left once the block has come to its end; the lease is to be retired in
                it.
            read: Loads what the lease knows at first. It is not called where the last owner was in this process and
                passed `read` too, and no other owner came since: what that one knew is known already.

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
            lease: Lease | None = None
            try:
                # Epochs order processes that live: what loses one ends them all, and what is written under it syncs it.
                before = self._ended.pop(key, None)
                epoch, known = await self._database.transact(lambda tx: _taken(tx, key, before, read), synced=False)
                lease = Lease(key, epoch, self._database, known)
                yield lease
                await lease.close()
                if read is not None:
                    self._ended[key] = lease
                    while len(self._ended) > _KNOWN:
                        self._ended.popitem(last=False)
                if last:
                    held.forget()
            except BaseException:  # not by name: whatever it is goes on
                dropped = abandoned(task)  # then the lock goes with the file or the connection that it is on
                if lease is not None and not dropped:
                    await lease.close(write=False)
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


def _taken(
    transaction: Transaction, key: str, before: Lease | None, read: Callable[[Transaction], Known] | None
) -> tuple[int, Known]:
    """The next epoch of a key, and what its owner knows to begin with."""
    [(epoch,)] = transaction.execute(_BUMP, (key,))
    if read is None:
        return int(epoch), {}
    # Whoever else has owned it since has taken an epoch, in whatever process.
    return int(epoch), before.known if before is not None and before.epoch == epoch - 1 else read(transaction)


def _busy(key: str, wait: float) -> ThreadBusy:
    return ThreadBusy(
        f"{key!r} still has another owner after {wait:g} s", remedy="try again when its turn has ended, or wait longer"
    )


def _check(key: object, wait: object) -> None:
    if not isinstance(key, str) or not key or any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidArgument("key is not a text that UTF-8 can hold", remedy="give a key of one character or more")
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
        raise InvalidArgument(f"wait {wait!r} is not a time", remedy="give wait 0 or more seconds")
