"""One owner per thread: a queue in this process, a lock between processes, an epoch against late writers (T4).

The lock of a process that dies is released, also after kill -9 (`locks`), so a lease has no time to live. A lock can be
lost while its holder lives, if a file system drops locks or a connection breaks. Then the epoch protects the data:
`Lease.verify` runs inside the transaction that writes. Between processes, the first to ask after a release gets the
lock. A process in which many tasks wait lets other processes in from time to time.
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
from .locks import HeldLock
from .schema import Schema
from .transaction import Transaction

EPOCHS = Schema("epochs", (("CREATE TABLE wa_epoch(key TEXT PRIMARY KEY, epoch BIGINT NOT NULL)",),))
# A retired key starts again above its old epochs. One row has the highest epoch of all retired keys.
_BUMP = f"""INSERT INTO wa_epoch(key, epoch)
            VALUES(?, 1 + {HIGHEST})
            ON CONFLICT(key) DO UPDATE SET epoch=wa_epoch.epoch+1 RETURNING epoch"""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
MAX_RUN_SECONDS = 1.0  # seconds for which one process passes a key between its own waiting tasks
BREAK_SECONDS = 3 * _LONGEST_PAUSE
MAX_KNOWN_KEYS = 256  # keys for which the data of the last owner is kept in memory


class _Queue(asyncio.Lock):
    """The tasks of this process that wait for one key.

    The next task takes the key before another process looks again. Without a break, other processes would not get the
    key while the queue has tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting_tasks = 0
        self._since = 0.0

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Count as waiting for the block."""
        if self._waiting_tasks == 0:
            self._since = time.monotonic()
        self._waiting_tasks += 1
        try:
            yield
        finally:
            self._waiting_tasks -= 1

    async def yield_ownership(self) -> None:
        """Pause so that other processes can take the key, if the queue has had tasks for long."""
        if time.monotonic() - self._since > MAX_RUN_SECONDS:
            await asyncio.sleep(BREAK_SECONDS)
            self._since = time.monotonic()


class Leases:
    """Hands out leases, for keys of any kind.

    Args:
        database: The database of the epochs; it needs the schema `EPOCHS`.
        folder: The folder of the lock files; only a SQLite database needs it.
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
        """Own `key` inside the `async with`. Other tasks wait; in this process the first to ask is the next owner.

        Do not ask for the same key again inside: that would wait for itself.

        Args:
            key: The key to own, not empty.
            wait: How many seconds to wait for another owner to end; 0 tries once.
            last: Whether to delete the lock's file at the end of the block. Retire the lease in the block.
            read: Loads the first value of `Lease.known`. It is not called if the last owner was in this process and
                passed `read` too, because its data is still in memory.

        Raises:
            ThreadBusy: Another owner still has it after `wait` seconds.
            InvalidArgument: `key` is not a non-empty string, or `wait` is not a number of 0 or more.
            StorageUnavailable: The lock cannot be taken, or the epoch cannot be written.
            AgentClosed: The database is closed.
        """
        _check(key, wait)
        deadline = asyncio.get_running_loop().time() + wait
        async with self._queued(key, wait):
            held, task, dropped = await self._locked(key, deadline, wait), asyncio.current_task(), False
            lease: Lease | None = None
            try:
                # Not synced: a power failure that loses the epoch also ends all owners, and any commit syncs it.
                before = self._ended.pop(key, None)
                epoch, known = await self._database.transact(
                    lambda tx: _next_epoch(tx, key, before, read), synced=False
                )
                lease = Lease(key, epoch, self._database, known)
                yield lease
                await lease.close()
                if read is not None:
                    self._ended[key] = lease
                    while len(self._ended) > MAX_KNOWN_KEYS:
                        self._ended.popitem(last=False)
                if last:
                    held.forget()
            except BaseException:  # of any type; it is raised again
                dropped = abandoned(task)  # then the lock is released with its file or connection
                if lease is not None and not dropped:
                    await lease.close(write=False)
                raise
            finally:
                if not dropped:
                    await held.release()

    async def owned(self, keys: Iterable[str]) -> frozenset[str]:
        """Which of `keys` have an owner now, in this process or another.

        The answer can be out of date at once. With lock files, the check takes the lock of a free key for a moment. A
        task that asks for the key with `wait=0` in that moment finds it busy.

        Raises:
            StorageUnavailable: The locks cannot be checked.
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
                await queue.yield_ownership()
                yield
            finally:
                queue.release()

    async def _locked(self, key: str, deadline: float, wait: float) -> HeldLock:
        pause = _FIRST_PAUSE
        while (held := await self._locks.acquire(key)) is None:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise _busy(key, wait)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        return held


def _next_epoch(
    transaction: Transaction, key: str, before: Lease | None, read: Callable[[Transaction], Known] | None
) -> tuple[int, Known]:
    """The next epoch of a key, and the first data of its owner."""
    [(epoch,)] = transaction.execute(_BUMP, (key,))
    if read is None:
        return int(epoch), {}
    # Each owner takes one epoch, in any process. So if the last epoch is ours, no other owner came in between.
    return int(epoch), before.known if before is not None and before.epoch == epoch - 1 else read(transaction)


def _busy(key: str, wait: float) -> ThreadBusy:
    return ThreadBusy(
        f"{key!r} still has another owner after {wait:g} s", remedy="try again when its turn has ended, or wait longer"
    )


def _check(key: object, wait: object) -> None:
    if not isinstance(key, str) or not key or any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidArgument("`key` must be a non-empty string that UTF-8 can encode", remedy="pass another key")
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
        raise InvalidArgument(
            f"`wait` must be a number of seconds, 0 or more, got {wait!r}", remedy="pass 0 to try once"
        )
