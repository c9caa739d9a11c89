"""The lease: the right of a thread's one owner to write. A turn writes through it, in batches (D21).

`leases` makes sure that a thread has one owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ..core.awaiting import uninterrupted
from ..core.errors import LeaseLost
from .database import Database
from .transaction import Transaction

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
_RAISE = f"""INSERT INTO wa_epoch(key, epoch) VALUES('{RETIRED}', ?) ON CONFLICT(key) DO UPDATE
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
        transaction.execute(_RAISE, (self.epoch,))
        transaction.execute(_DELETE, (self.key,))


def _mark(transaction: Transaction) -> None:
    """A part that writes nothing; it marks where `after` was called."""


def _nothing(transaction: Transaction) -> None:
    """A part that writes nothing, to commit the kept parts."""
