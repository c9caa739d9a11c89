"""The lease: the right of a thread's one owner to write. A turn writes through it, in batches (D21).

`Leases` makes sure that a thread has one owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from ..core.clock import abandoned, uninterrupted
from ..core.errors import HostError, InvalidArgument, LeaseLost, ThreadBusy
from .database import Database
from .locks import HeldLock
from .schema import Schema, Transaction

T = TypeVar("T")
Part = Callable[[Transaction], T]
"""One write in a transaction. It can run more than once, so it must change nothing but the database."""

Known = dict[Hashable, Any]
"""Data of the thread that its owner has in memory, by kind."""

Batch = list[tuple[Part[Any], asyncio.Future[Any] | None]]
"""Parts in the order they came, each with the future of the task that waits for it."""

RETIRED: Final = ""
"""The key of the row with the highest epoch of all retired keys. No lease has this key."""

HIGHEST: Final = f"COALESCE((SELECT epoch FROM wa_epoch WHERE key='{RETIRED}'), 0)"
_RAISE = """INSERT INTO wa_epoch(key, epoch) VALUES(?, ?) ON CONFLICT(key) DO UPDATE
            SET epoch=CASE WHEN excluded.epoch > wa_epoch.epoch THEN excluded.epoch ELSE wa_epoch.epoch END"""
_EPOCH = "SELECT epoch FROM wa_epoch WHERE key=?"
_DELETE = "DELETE FROM wa_epoch WHERE key=?"
MAX_DELAY_SECONDS: Final = 1.0  # seconds after which a part is written if no commit has written it


@dataclass(slots=True)
class Lease:
    """The right to write for `key`, which lasts until it is released or taken over.

    `enqueue` keeps a part for later. `commit` writes all kept parts and one more in one transaction, in the order they
    came, so the disk always has a prefix of what the owner did (D21). One transaction runs at a time, and commits that
    come during it go into the next one. If a transaction fails, all its parts are lost, and later writes raise the same
    error until `recover` is called.

    Attributes:
        key: The key that is owned.
        epoch: How often `key` has been taken so far; grows with each lease.
        database: The database in which it is owned.
        known: Data of the key in memory, by kind, as it will be once all kept parts are on disk. Only the owner reads
            from it.
    """

    key: str
    epoch: int
    database: Database = field(repr=False, compare=False)
    known: Known = field(default_factory=dict, repr=False, compare=False)
    _waiting: Batch = field(default_factory=list, repr=False, compare=False)
    _wanted: bool = field(default=False, repr=False, compare=False)
    _writer: asyncio.Task[None] | None = field(default=None, repr=False, compare=False)
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False, compare=False)
    _failure: BaseException | None = field(default=None, repr=False, compare=False)
    _closed: bool = field(default=False, repr=False, compare=False)

    # --- writing ----------------------------------------------------------------------------------------------------

    def enqueue(self, part: Part[object]) -> None:
        """Keep `part` until the next `commit`, for one second at most.

        Raises:
            LeaseLost: The lease was released.
            HostError: An earlier transaction of this lease failed with this error.
        """
        self.check()
        self._keep(part, None)

    def after(self, then: Callable[[], object]) -> None:
        """Call `then` once all parts kept so far are on disk, or never if they are lost; raises as `enqueue` does."""
        self.check()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda done: None if done.cancelled() or done.exception() else then())
        self._keep(_mark, done)

    def _keep(self, part: Part[object], done: asyncio.Future[Any] | None) -> None:
        self._waiting.append((part, done))
        if self._timer is None:
            # In an empty context: a loop keeps cancelled timers for a while, and their context would keep the turn.
            self._timer = asyncio.get_running_loop().call_later(
                MAX_DELAY_SECONDS, self._write_overdue, context=Context()
            )

    async def commit(self, part: Part[T], *, final: bool = False) -> T:
        """Write the kept parts and `part` in one transaction, and return what `part` returns.

        If the awaiting task is cancelled, the transaction still ends as it would have. Then the cancellation is raised,
        or is ignored if the transaction is `final`.

        Raises:
            LeaseLost: Another owner took over `key`, or the lease was released.
            HostError: This transaction or an earlier one of this lease failed; nothing of it is written.
        """
        self.check()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((part, done))
        self._write()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                try:
                    await asyncio.wait({done})
                except asyncio.CancelledError:
                    continue
            if final:
                return done.result()
            done.exception()  # marks it as retrieved, since the cancelled caller does not read it
            raise

    async def flush(self) -> None:
        """Write the kept parts, if there are any; raises what `commit` raises."""
        if self._waiting or self._writer is not None or self._failure is not None:
            await self.commit(_nothing)

    def check(self) -> None:
        """Make sure that no kept part was lost.

        Raises:
            LeaseLost: The lease was released.
            HostError: A transaction failed with this error.
        """
        if self._closed:
            raise self._ended_error()
        if self._failure is not None:
            raise self._failure

    def _ended_error(self) -> LeaseLost:
        return LeaseLost(
            f"the turn that owned {self.key!r} has ended, but its code still writes",
            remedy="await everything that a tool or a handler starts before it returns",
        )

    def recover(self) -> None:
        """Allow writes again after a failed transaction, to record how the run ended. The failed parts stay lost."""
        self._failure = None

    async def close(self, *, write: bool = True) -> None:
        """Write the kept parts, or drop them if not `write`. Every later write raises `LeaseLost`."""
        try:
            if write:
                await self.flush()
        finally:
            self._closed = True
            if self._waiting:
                self._fail(self._waiting, self._ended_error())
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._writer is not None:
                await uninterrupted(asyncio.wait({self._writer}))

    def _write_overdue(self) -> None:
        self._timer = None
        if self._waiting:
            self._write()

    def _write(self) -> None:
        self._wanted = True
        if self._writer is None:
            # In an empty context, so that the writer has neither the turn's context variables nor its role.
            self._writer = asyncio.get_running_loop().create_task(self._write_batches(), context=Context())
            self._writer.add_done_callback(self._fail_unstarted)

    def _fail_unstarted(self, writer: asyncio.Task[None]) -> None:
        """Fail the commits of a writer that was cancelled before its first step, such as by the end of the loop."""
        if self._writer is writer:
            self._writer = None
            self._fail(self._waiting, asyncio.CancelledError())

    async def _write_batches(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                batch, self._waiting = self._waiting, []
                await self._transact(batch)
        finally:
            self._writer = None

    async def _transact(self, batch: Batch) -> None:
        parts = [part for part, _ in batch]

        def work(transaction: Transaction) -> list[Any]:
            self.verify(transaction)
            return [part(transaction) for part in parts]

        try:
            results = await self.database.transact(work)
        except BaseException as error:  # of any type, since it is raised in every waiting caller
            self._fail([*batch, *self._waiting], error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, done), result in zip(batch, results, strict=True):
            if done is not None and not done.done():
                done.set_result(result)

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Fail each commit in `batch`, and all later writes."""
        self._failure, self._waiting, self._wanted = error, [], False
        self.known.clear()
        for _, done in batch:
            if done is not None and not done.done():
                done.set_exception(error)
                done.exception()  # marks it as retrieved, since its caller may be gone

    # --- being the owner --------------------------------------------------------------------------------------------

    def verify(self, transaction: Transaction) -> None:
        """Check that this lease still owns the key. Call it first in any transaction that `commit` does not make.

        Raises:
            LeaseLost: Another owner took over `key`.
        """
        if [tuple(row) for row in transaction.hold(_EPOCH, (self.key,))] != [(self.epoch,)]:
            raise LeaseLost(
                f"another owner took over {self.key!r} after epoch {self.epoch}",
                remedy="drop this work and try again; the thread continues from its last message",
            )

    def forget(self, transaction: Transaction) -> None:
        """Verify the lease, then delete the epoch of a key that had no earlier owner. This is the lease's last write.

        Raises:
            LeaseLost: Another owner took over `key`.
        """
        self.verify(transaction)
        # A later epoch stays. Otherwise the count would restart, and an old owner that still runs could match it again.
        transaction.execute(f"{_DELETE} AND epoch=1 + {HIGHEST}", (self.key,))

    def retire(self, transaction: Transaction) -> None:
        """Forget the key, in the transaction that removes the data it owns.

        A later owner of the key still gets a higher epoch, so writes of earlier owners stay refused.

        Raises:
            LeaseLost: Another owner took over `key`.
        """
        self.verify(transaction)
        transaction.execute(_RAISE, (RETIRED, self.epoch))
        transaction.execute(_DELETE, (self.key,))


def _mark(transaction: Transaction) -> None:
    """A part that writes nothing; it marks where `after` was called."""


def _nothing(transaction: Transaction) -> None:
    """A part that writes nothing, to commit the kept parts. The kill tests count it, and not `_mark`, by its name."""


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

    @property
    def waits(self) -> bool:
        """Whether a task waits for the key while another one has it."""
        return self._waiting_tasks > 1

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
        used: Says of a key whether there is anything that it owns. If there is nothing after a block that raised, the
            key is retired: a refusal leaves nothing behind. None keeps all keys.
    """

    def __init__(
        self, database: Database, folder: Path | None, *, used: Callable[[Transaction, str], bool] | None = None
    ) -> None:
        self._used = used
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
            except BaseException as error:  # of any type; it is raised again
                dropped = abandoned(task)  # then the lock is released with its file or connection
                if lease is not None and not dropped:
                    await lease.close(write=False)
                    if isinstance(error, Exception) and await self._is_forgotten(lease):
                        held.forget()
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

    def wanted(self, key: str) -> bool:
        """Whether tasks of this process wait for a key that another one of its tasks has."""
        queue = self._queues.get(key)
        return queue is not None and queue.waits

    async def epoch(self, key: str) -> int:
        """Return the epoch of a key; 0 if it has none.

        Raises:
            StorageUnavailable: The database cannot be read.
        """
        rows = await self._database.read(lambda tx: tx.execute(_EPOCH, (key,)))
        return int(rows[0][0]) if rows else 0

    async def raise_epoch(self, key: str, epoch: int) -> None:
        """Raise the epoch of a key that is never owned; one that is higher already stays.

        Raises:
            StorageUnavailable: The database cannot be written.
        """
        await self._database.transact(lambda tx: tx.execute(_RAISE, (key, epoch)))

    async def lost(self, lease: Lease) -> bool:
        """Whether the lock of a lease that is held here is gone, as on Postgres with its connection.

        Raises:
            StorageUnavailable: The locks cannot be checked.
        """
        return lease.key not in await self._locks.owned(frozenset({lease.key}))

    async def _is_forgotten(self, lease: Lease) -> bool:
        """Retire a key that owns nothing; returns whether it is retired."""
        used = self._used

        def work(transaction: Transaction) -> bool:
            assert used is not None
            if used(transaction, lease.key):
                return False
            lease.retire(transaction)
            return True

        with contextlib.suppress(HostError):  # the caller gets the error that ended the block, not this one
            if used is not None and not await self._database.read(lambda tx: used(tx, lease.key)):
                return await self._database.transact(work, synced=False)
        return False

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
