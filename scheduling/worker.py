"""A worker process: takes submitted turns from the queue, runs them, and takes over those of workers that died.

A worker is alive as long as it holds its lease, a lock that the system or the database frees when the process ends. No
time is involved, so a slow worker is not taken for dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from ..agent import WorldAgent
from ..agent.runtime.inside import inside
from ..agent.submitting import submitted
from ..core import new_id
from ..core.clock import uninterrupted
from ..core.errors import (
    AgentClosed,
    InvalidArgument,
    LeaseLost,
    StorageUnavailable,
    ThreadBusy,
    VersionTooOld,
    WorldAgentError,
)
from ..memory.workers import WorkerRow, remove_worker, worker_lease, write_worker
from ..storage import Lease, Transaction
from ..storage.database import given_up_after
from .queue import load, queue_of

if TYPE_CHECKING:
    from .dbos_queue import Outcome, Takes

LOOK_SECONDS: Final = 1.0
"""How often a worker looks for turns of workers that died."""

BEAT_SECONDS: Final = 5.0
"""How often a worker writes how it is, for people."""

KEPT_SECONDS: Final = 86400.0
"""How long the queue keeps a start, with its text, after the start has left it."""

PRUNE_SECONDS: Final = 60.0
"""How often a worker deletes starts that are older."""

RETRY_SECONDS: Final = (1.0, 5.0, 25.0)
"""The waits before a turn that failed with a retryable error is resumed."""

BUSY_SECONDS: Final = 1.0
"""The wait before the next try, if another turn owns the thread or the database is down."""

DRAIN_SECONDS: Final = 20
"""How long a worker that ends waits for its running turns."""

_LOG: Final = logging.getLogger("worldagent.worker")


@dataclass(slots=True)
class Counts:
    """What a worker has done so far.

    Attributes:
        begun: How many starts it has taken.
        ended: How many of them are over or wait for a person.
        failed: How many of those failed.
        taken_over: How many starts of dead workers it has put back into the queue.
        looks: How often it has looked for dead workers.
        waiting: How many starts waited in the queue at its last look, whatever their version.
    """

    begun: int = 0
    ended: int = 0
    failed: int = 0
    taken_over: int = 0
    looks: int = 0
    waiting: int = 0

    @property
    def running(self) -> int:
        """How many run now."""
        return self.begun - self.ended

    def __str__(self) -> str:
        return f"{self.ended} turns ended or wait for a person, {self.failed} failed, {self.running} left to resume"


class QueueWorker:
    """Runs the submitted turns of an agent's workspace. A process can have one.

    Args:
        agent: The open agent, which has a queue.
        concurrency: How many turns it runs at once. Default: the queue's `worker_concurrency`.
        queue_concurrency: How many turns all workers run at once. Default: the queue's `concurrency`.

    Attributes:
        counts: What it has done so far.

    Raises:
        InvalidArgument: The agent has no queue, or a number is out of range.
    """

    def __init__(
        self, agent: WorldAgent, *, concurrency: int | None = None, queue_concurrency: int | None = None
    ) -> None:
        queue = queue_of(agent)
        if queue is None:
            raise InvalidArgument("the agent has no queue", remedy="pass WorldAgent(queue=Queue())")
        if concurrency is not None:
            queue = replace(queue, worker_concurrency=concurrency)
        if queue_concurrency is not None:
            queue = replace(queue, concurrency=queue_concurrency)
        self._agent, self._queue = agent, queue
        self.counts = Counts()
        host, pid, now = socket.gethostname()[:40], os.getpid(), inside(agent).clock.now()
        self._row = WorkerRow(
            workspace=agent.workspace,
            id=_new_id(host, pid),
            host=host,
            pid=pid,
            version=version("worldagent"),
            since=now,
            seen=now,
        )
        self._closing = False
        self._takes: Takes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def id(self) -> str:
        """Its id, unique to this start of the process. It gets another one if it loses its lease."""
        return self._row.id

    @property
    def draining(self) -> bool:
        """Whether it takes no more turns."""
        return self._closing

    @asynccontextmanager
    async def running(self, *, drain: int = DRAIN_SECONDS) -> AsyncGenerator[None]:
        """Take and run submitted turns while the block runs; see `run`."""
        opened = asyncio.Event()
        running = asyncio.ensure_future(self._serve(drain, opened))
        opening = asyncio.ensure_future(opened.wait())
        try:
            await asyncio.wait({running, opening}, return_when=asyncio.FIRST_COMPLETED)
            if opened.is_set():
                yield
        finally:
            opening.cancel()
            await self._end(running, drain)
        if not running.cancelled():
            running.result()

    async def run(self, *, drain: int = DRAIN_SECONDS) -> None:
        """Take and run submitted turns until this is cancelled.

        Then the worker takes no more and waits for its running turns. Drain or close the agent after that: what still
        runs is resumed by another worker, or by the next one that starts.

        Args:
            drain: How many seconds to wait at the end.

        Raises:
            InvalidArgument: The process has a worker already.
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue or the database cannot be reached at the start.
        """
        running = asyncio.ensure_future(self._serve(drain, asyncio.Event()))
        try:
            await asyncio.wait({running})
        finally:
            await self._end(running, drain)
        running.result()

    async def _end(self, running: asyncio.Task[None], drain: int) -> None:
        """End `_serve`, without waiting for ever for a database that answers nothing."""
        running.cancel()
        with inside(self._agent).stores.database.given_up_after(drain):
            await uninterrupted(asyncio.wait({running}))
        if not running.cancelled():
            running.exception()  # retrieved: after a cancellation nobody reads it

    async def _serve(self, drain: int, opened: asyncio.Event) -> None:
        """Run until this is cancelled; `opened` is set once the worker takes turns."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await self._live(drain, opened)
            except LeaseLost as error:
                # Its turns continue here: it takes them over, unless another worker has done so.
                _LOG.warning("worker %s lost its lease, and starts again under another id: %s", self.id, error)
            except StorageUnavailable as error:
                if not opened.is_set():
                    raise
                _LOG.warning("worker %s cannot start again: %s", self.id, error)
                await asyncio.sleep(LOOK_SECONDS)
            self._row = self._row.model_copy(update={"id": _new_id(self._row.host, self._row.pid)})
            self._closing = False
            self.counts.begun = self.counts.ended

    async def _live(self, drain: int, opened: asyncio.Event) -> None:
        """Be the worker of one id, until this is cancelled or the lease is lost."""
        leases, workspace = inside(self._agent).stores.leases, self._agent.workspace
        async with leases.hold(worker_lease(workspace, self.id), wait=0, last=True) as lease:
            module, lost = await asyncio.to_thread(load), False
            storage = self._agent.storage
            connections = module.Connections(storage)

            def open_takes() -> None:
                where = (storage, workspace, self._queue, connections)
                self._takes = module.Takes(*where, executor=self.id, runner=self._bridged)

            try:
                await connections.opened(open_takes)
                await self._tell_versions(module.VERSION)
                opened.set()
                await self._watch(lease)
            except LeaseLost:
                lost = True
                raise
            finally:
                cancelled = await self._close(0 if lost else drain)
                with contextlib.suppress(LeaseLost, StorageUnavailable):  # then a survivor removes it
                    await lease.commit(partial(self._remove, self.id, lease), final=True)
                if cancelled:
                    raise asyncio.CancelledError

    async def waiting(self) -> Mapping[str, int]:
        """Return how many starts wait in the queue, by the version of their format.

        Raises:
            AgentClosed: The worker does not run.
            StorageUnavailable: The queue cannot be reached.
        """
        if self._takes is None:
            raise AgentClosed("the worker does not run", remedy="use it inside of `running`")
        return await asyncio.to_thread(self._takes.waiting)

    async def _tell_versions(self, own: str) -> None:
        for other, count in (await self.waiting()).items():
            if other != own:
                _LOG.warning(
                    "%s submitted turns wait for a worker of another version of this package: their format is %r, and "
                    "this worker takes %r; start one of the version that submitted them",
                    *(count, other, own),
                )

    async def _close(self, seconds: int) -> bool:
        """Take no more turns, and wait for the running ones; returns whether the caller was cancelled meanwhile."""
        takes, self._takes = self._takes, None
        if takes is None:
            return False
        busy, self._closing = self.counts.running, True
        wait = seconds if busy else 0
        with given_up_after(wait, takes.connections.give_up):
            _, cancelled = await uninterrupted(asyncio.to_thread(takes.close, wait))
        left = self.counts.running
        _LOG.info("worker %s ends: %s turns ended while it waited, %s are left to resume", self.id, busy - left, left)
        return cancelled

    def _remove(self, worker: str, lease: Lease, transaction: Transaction) -> None:
        remove_worker(transaction, self._agent.workspace, worker)
        lease.retire(transaction)

    # --- running a turn ---------------------------------------------------------------------------------------------

    async def _bridged(self, start: Mapping[str, Any]) -> Outcome:
        """Run a start in the agent's loop; DBOS calls this in its own."""
        assert self._loop is not None
        # In an empty context, so that the turn does not see DBOS's.
        begun = Context().run(asyncio.run_coroutine_threadsafe, self._run(start), self._loop)
        return await asyncio.wrap_future(begun)

    async def _run(self, start: Mapping[str, Any]) -> Outcome:
        self.counts.begun += 1
        try:
            outcome = await self._tried(start)
        except asyncio.CancelledError:
            self.counts.ended += not self._closing  # else it is left to another worker
            raise
        self.counts.ended += 1
        self.counts.failed += outcome.get("code") is not None
        return outcome

    async def _tried(self, start: Mapping[str, Any]) -> Outcome:
        """Run the turn; resume it by its key if it failed with an error that can pass."""
        waits = iter(RETRY_SECONDS)
        while True:
            try:
                return await self._turn(start)
            except (ThreadBusy, StorageUnavailable) as error:
                wait = BUSY_SECONDS
                if isinstance(error, StorageUnavailable):
                    _LOG.warning("the submitted turn %r waits for the database: %s", start["key"], error)
            except VersionTooOld as error:
                _LOG.warning("the submitted turn %r is left to a newer worker: %s", start["key"], error)
                return await _for_ever()  # the start stays taken, until another worker takes it over
            except WorldAgentError as error:
                if isinstance(error, AgentClosed) and not self._agent.is_open:
                    return await _for_ever()
                wait = next(waits, 0.0) if error.retryable else 0.0
                if not wait:
                    _LOG.warning("the submitted turn %r failed: %s", start["key"], error)
                    return {"code": error.code, "turn": error.turn_id}
            except Exception as error:  # not named: the app's tools can raise any type
                _LOG.error("the submitted turn %r failed with %s", start["key"], type(error).__name__)
                return {"code": "host_error", "turn": None}
            await asyncio.sleep(wait)

    async def _turn(self, start: Mapping[str, Any]) -> Outcome:
        stream = submitted(self._agent.thread, start)
        try:
            async with stream:
                turn = await stream.wait()
        except asyncio.CancelledError:
            if not self._closing and stream.recorded:  # it was entered, and the submission was cancelled
                await stream.cancel()
            raise
        if turn.status == "stopped":
            return await _for_ever()
        return {"turn": turn.id, "status": turn.status}

    # --- taking over ------------------------------------------------------------------------------------------------

    async def _watch(self, lease: Lease) -> None:
        """Look for dead workers, and tell people about this one.

        Raises:
            LeaseLost: Its lock is gone, or another worker has taken over.
        """
        beat = prune = 0.0
        while True:
            now = asyncio.get_running_loop().time()
            try:
                if now >= beat:
                    beat = now + BEAT_SECONDS
                    await self._beat(lease)
                await self._take_over()
                if now >= prune:
                    prune = now + PRUNE_SECONDS
                    await self._prune()
                self.counts.waiting = sum((await self.waiting()).values())
                self.counts.looks += 1
            except LeaseLost:
                raise
            except WorldAgentError as error:
                _LOG.warning("worker %s could not look for dead workers: %s", self.id, error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _beat(self, lease: Lease) -> None:
        """Write what people can read about this worker, which also shows whether it still owns its lease."""
        counts, now = self.counts, inside(self._agent).clock.now()
        update = {"seen": now, "running": counts.running, "ended": counts.ended, "failed": counts.failed}
        row = self._row.model_copy(update=update)
        if await inside(self._agent).stores.leases.lost(lease):
            raise LeaseLost(
                f"the lock of the worker {self.id!r} broke with its connection", remedy="check the server's connections"
            )
        lease.recover()  # a write that failed before says nothing about this one
        await lease.commit(lambda transaction: write_worker(transaction, row))

    async def _prune(self) -> None:
        """Delete starts that have left the queue long ago; their results are in the agent's database."""
        assert self._takes is not None
        # By the time of day, as DBOS writes it, and not by the agent's clock.
        await asyncio.to_thread(self._takes.prune, datetime.now(UTC) - timedelta(seconds=KEPT_SECONDS))

    async def _take_over(self) -> None:
        """Put the starts of workers without a lease back into the queue."""
        takes, workspace, leases = self._takes, self._agent.workspace, inside(self._agent).stores.leases
        assert takes is not None
        others = {row.id for row in await inside(self._agent).stores.workers.list() if row.workspace == workspace}
        others |= await asyncio.to_thread(takes.holders)
        keys = {worker_lease(workspace, other): other for other in others - {self.id}}
        for key in keys.keys() - await leases.owned(keys):
            # The process that holds the dead worker's lease takes its starts, so no two survivors do.
            with contextlib.suppress(ThreadBusy):
                async with leases.hold(key, wait=0, last=True) as lease:
                    count = await asyncio.to_thread(takes.take_over, keys[key])
                    self.counts.taken_over += count
                    _LOG.warning("worker %s took over %s turns of %s, which has died", self.id, count, keys[key])
                    await lease.commit(partial(self._remove, keys[key], lease), final=True)


def _new_id(host: str, pid: int) -> str:
    return f"{host}-{pid}-{new_id('worker')[-8:]}"


async def _for_ever() -> Outcome:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets this event")
