"""The right of a thread's one owner to write, and the one way in which a turn writes: in batches (D21).

How a thread comes to have one owner is `leases`' matter.
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
"""One thing that is written in a transaction. It may run more than once, so it changes nothing but the database."""

Known = dict[Hashable, Any]
"""What an owner knows of what it owns, by what it is."""

Batch = list[tuple[Part[Any], asyncio.Future[Any] | None]]
"""Parts in the order they came, each with who waits for it."""

RETIRED: Final = ""
"""The key of the row that has the highest epoch of all keys that were retired. No lease has it."""

HIGHEST: Final = f"COALESCE((SELECT epoch FROM wa_epoch WHERE key='{RETIRED}'), 0)"
_RAISE = f"""INSERT INTO wa_epoch(key, epoch) VALUES('{RETIRED}', ?) ON CONFLICT(key) DO UPDATE
             SET epoch=CASE WHEN excluded.epoch > wa_epoch.epoch THEN excluded.epoch ELSE wa_epoch.epoch END"""
_EPOCH = "SELECT epoch FROM wa_epoch WHERE key=?"
_DELETE = "DELETE FROM wa_epoch WHERE key=?"
_LATEST: Final = 1.0  # seconds after which a part is written that nothing has taken along


@dataclass(slots=True)
class Lease:
    """The right to write for `key`, which lasts until it is released or taken over.

    `enqueue` keeps a part, `commit` writes all that is kept and one part more in one transaction, in the order they
    came, so what is on the disk is always a prefix of what the owner did (D21). One transaction is under way at a
    time; what is committed meanwhile goes into the next. A transaction that fails takes all its parts with it, and
    whatever is written afterwards fails as it did, until `recover`.

    Attributes:
        key: What is owned.
        epoch: How often `key` has been taken so far; grows with each lease.
        database: Where it is owned.
        known: What the owner has read or written of what it owns, by what it is, as it is once all that is kept is on
            the disk. Reads of the owner are answered from it, and nobody else's.
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
        """Keep `part` until the next `commit`, or for a second at most.

        Raises:
            LeaseLost: The lease was released.
            HostError: An earlier transaction of this lease failed; the error is that one.
        """
        self.check()
        self._keep(part, None)

    def after(self, then: Callable[[], object]) -> None:
        """Call `then` once all parts kept so far are on the disk, never if they are lost; raises as `enqueue`."""
        self.check()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda done: None if done.cancelled() or done.exception() else then())
        self._keep(_mark, done)

    def _keep(self, part: Part[object], done: asyncio.Future[Any] | None) -> None:
        self._waiting.append((part, done))
        if self._timer is None:
            # Not in the turn's context: a loop keeps cancelled timers for a while, and the context would keep the turn.
            self._timer = asyncio.get_running_loop().call_later(_LATEST, self._late, context=Context())

    async def commit(self, part: Part[T], *, final: bool = False) -> T:
        """Write what waits and `part` in one transaction; returns what `part` returns.

        If the awaiting task is cancelled, the transaction still ends as it would have. Then the cancellation is raised,
        or has no effect if the transaction is `final`.

        Raises:
            LeaseLost: Another owner took `key` over, or the lease was released.
            HostError: This transaction failed, or an earlier one of this lease; nothing of it is written.
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
            done.exception()  # marks it as retrieved: the cancelled caller does not look
            raise

    async def flush(self) -> None:
        """Write what waits, if anything does; raises what `commit` raises."""
        if self._waiting or self._writer is not None or self._failure is not None:
            await self.commit(_nothing)

    def check(self) -> None:
        """Make sure that nothing of what was kept is lost.

        Raises:
            LeaseLost: The lease was released.
            HostError: A transaction failed; the error is that one.
        """
        if self._closed:
            raise self._over()
        if self._failure is not None:
            raise self._failure

    def _over(self) -> LeaseLost:
        return LeaseLost(
            f"the turn that owned {self.key!r} is over, and something of it still writes",
            remedy="await what a tool or a handler begins before it returns",
        )

    def recover(self) -> None:
        """Write again after a transaction that failed: what failed is lost, and how the run ended is to be said."""
        self._failure = None

    async def close(self, *, write: bool = True) -> None:
        """Write what waits, unless it is to be dropped; whatever is written from now on raises `LeaseLost`."""
        try:
            if write:
                await self.flush()
        finally:
            self._closed = True
            if self._waiting:
                self._fail(self._waiting, self._over())
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._writer is not None:
                await uninterrupted(asyncio.wait({self._writer}))

    def _late(self) -> None:
        self._timer = None
        if self._waiting:
            self._write()

    def _write(self) -> None:
        self._wanted = True
        if self._writer is None:
            # Not in the context of what the turn is doing, nor with its role.
            self._writer = asyncio.get_running_loop().create_task(self._written(), context=Context())
            self._writer.add_done_callback(self._unbegun)

    def _unbegun(self, writer: asyncio.Task[None]) -> None:
        """Fail the commits of a writer that was cancelled before its first step, as by the end of a loop."""
        if self._writer is writer:
            self._writer = None
            self._fail(self._waiting, asyncio.CancelledError())

    async def _written(self) -> None:
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
        except BaseException as error:  # not by name: each that waits gets it
            self._fail([*batch, *self._waiting], error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, done), result in zip(batch, results, strict=True):
            if done is not None and not done.done():
                done.set_result(result)

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Fail each commit in `batch`, and what is written afterwards."""
        self._failure, self._waiting, self._wanted = error, [], False
        self.known.clear()
        for _, done in batch:
            if done is not None and not done.done():
                done.set_exception(error)
                done.exception()  # marks it as retrieved: its caller may be gone

    # --- being the owner --------------------------------------------------------------------------------------------

    def verify(self, transaction: Transaction) -> None:
        """Call first in a transaction of one's own that writes under this lease; `commit` does it.

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
        transaction.execute(f"{_DELETE} AND epoch=1 + {HIGHEST}", (self.key,))

    def retire(self, transaction: Transaction) -> None:
        """Forget the key, in the transaction that removes what it owns.

        Whoever asks for it later gets a higher epoch all the same, so late writers of before stay refused.

        Raises:
            LeaseLost: Somebody took `key` over since.
        """
        self.verify(transaction)
        transaction.execute(_RAISE, (self.epoch,))
        transaction.execute(_DELETE, (self.key,))


def _mark(transaction: Transaction) -> None:
    """Write nothing: marks where `after` was called among the parts."""


def _nothing(transaction: Transaction) -> None:
    """A part that takes along what waits."""
