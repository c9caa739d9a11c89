"""What wakes a gateway at once when a message waits (0111).

The message is in the database before. A wake-up that is lost costs time and nothing else, because gateways poll, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, Final, Protocol

from pydantic import SecretStr

from ...core.errors import MissingExtra, StorageUnavailable
from ...storage import Database, Transaction

CHANNEL: Final = "worldagent_mail"
"""The channel of Postgres, whose payload is the workspace."""

RETRY_SECONDS: Final = 1.0
_RECANCEL_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.5
"""How long to wait between two looks at the mailboxes."""

_LOG: Final = logging.getLogger("worldagent.gateway")


class Watch:
    """Wakes one task that waits for messages."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._now, self._next = asyncio.Event(), asyncio.Event()

    def ring(self) -> asyncio.Event:
        """Wake the task; returns an event that is set once the task has looked at the mailboxes after that."""
        self._rung.set()
        return self._next

    async def wait(self) -> None:
        """Return once it rang since the last call. A call confirms that the mailboxes were looked at since then."""
        self._now.set()
        await self._rung.wait()
        self._rung.clear()
        self._now, self._next = self._next, asyncio.Event()


class Wakeups(Protocol):
    """Carries wake-ups from the processes that send messages to those that wait for them."""

    def within(self, transaction: Transaction, workspace: str) -> None:
        """Announce a message in the transaction that stores it."""
        ...

    def publish(self, workspace: str, message_ids: Sequence[str]) -> None:
        """Announce messages whose transaction is committed. It does not wait."""
        ...

    def listen(self, workspace: str, *, every: bool = False) -> AbstractAsyncContextManager[Watch]:
        """Ring a watch while messages of a workspace are announced.

        Args:
            workspace: The workspace.
            every: Whether every announcement rings it. Otherwise one of the gateways that listen can be enough.
        """
        ...

    async def receive_events(self, workspace: str, post: Callable[[bytes], Awaitable[bool]]) -> None:
        """Take the events that others publish for a workspace until this is cancelled. Without a broker it returns.

        Args:
            workspace: The workspace.
            post: Takes the JSON of an event; returns False if it must come again later.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class DatabaseWakeups:
    """Wake-ups without a broker: LISTEN and NOTIFY on Postgres, and within this process on SQLite.

    Args:
        database: The database with the messages.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watches: list[tuple[str, Watch]] = []
        self._receiving: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    def within(self, transaction: Transaction, workspace: str) -> None:
        """See `Wakeups.within`. Postgres sends the notification when the transaction is committed."""
        if self._database.engine == "postgres":
            transaction.execute("SELECT pg_notify(?, ?)", (CHANNEL, workspace))

    def publish(self, workspace: str, message_ids: Sequence[str]) -> None:
        """See `Wakeups.publish`."""
        if self._database.engine == "sqlite":
            self._ring(workspace)

    @asynccontextmanager
    async def listen(self, workspace: str, *, every: bool = False) -> AsyncGenerator[Watch]:
        """See `Wakeups.listen`. Every announcement rings every watch; all of them share one connection."""
        watch = Watch()
        place = (workspace, watch)
        self._watches.append(place)
        try:
            if self._database.engine == "postgres":
                if self._receiving is None:
                    self._receiving = asyncio.ensure_future(self._receive())
                await self._tried.wait()
            yield watch
        finally:
            self._watches.remove(place)
            if not self._watches:
                await self.aclose()

    async def receive_events(self, workspace: str, post: Callable[[bytes], Awaitable[bool]]) -> None:
        """See `Wakeups.receive_events`: nothing is published to a database."""

    async def aclose(self) -> None:
        """See `Wakeups.aclose`."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            self._tried = asyncio.Event()
            await cancelled(receiving)

    def _ring(self, workspace: str | None) -> None:
        for its, watch in self._watches:
            if workspace in (its, None):
                watch.ring()

    async def _receive(self) -> None:
        """Ring the watches as notifications come, and all of them whenever the connection is made."""
        from ...storage.postgres import notifications

        tried, failed = self._tried, False
        while True:
            try:
                async with aclosing(notifications(self._database, CHANNEL)) as received:
                    async for workspace in received:
                        tried.set()
                        failed = False
                        self._ring(workspace)
            except StorageUnavailable as error:
                if not failed:
                    _LOG.warning("gateways are not notified and only poll: %s", error.problem)
                failed = True
            tried.set()
            await asyncio.sleep(RETRY_SECONDS)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they are over. Before Python 3.12 `asyncio.wait_for` can swallow a cancellation."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_RECANCEL_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*waits: Awaitable[object]) -> None:
    """Wait until the first of some is over, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled(*tasks)


def wakeups_of(database: Database, nats_url: SecretStr | None = None) -> Wakeups:
    """The wake-ups of a society: those of a broker, or those of its database.

    Raises:
        MissingExtra: The extra `nats` is not installed.
    """
    if nats_url is None:
        return DatabaseWakeups(database)
    with suppress(ImportError):
        from .nats import NatsWakeups

        return NatsWakeups(nats_url.get_secret_value())
    raise MissingExtra(
        "the setting nats_url needs the extra 'nats', which is not installed",
        remedy="run pip install 'worldagent[nats]', or leave the setting out",
    )
