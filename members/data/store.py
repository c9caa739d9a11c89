"""The database of a workspace's members, whose transactions announce the messages in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ...core import Clock, SystemClock, new_id
from ...storage import Database, Transaction
from ..mail.notices import Notice, NoticingTransaction, Notify, Refusal
from ..mail.wakeups import DatabaseWakeups, Wakeups
from .workspace import WorkspaceConfig

T = TypeVar("T")


class WorkspaceStore:
    """What the parts of a society share: the workspace, its database, and the time.

    Args:
        config: The workspace.
        database: A database that was opened with the schema `SOCIETY`.
        clock: Source of time.
        notify: Receives what was sent and refused, once it is committed.
        wakeups: What wakes gateways. Default: the database.

    Attributes:
        config: The workspace.
        id: Its id.
        database: The database.
        clock: Source of time.
        notify: The receiver.
        wakeups: What wakes gateways.
    """

    def __init__(
        self,
        config: WorkspaceConfig,
        database: Database,
        clock: Clock | None = None,
        *,
        notify: Notify | None = None,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.config = config
        self.id = config.id
        self.database = database
        self.clock = clock or SystemClock()
        self.notify = notify
        self.wakeups = wakeups or DatabaseWakeups(database)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction that only reads."""
        return await self.database.read(work)

    async def transact(self, work: Callable[[Transaction], T], *, wakes: bool = False) -> T:
        """Run `work` in a transaction, and announce the messages in it: for events and traces, and to wake gateways.

        Args:
            work: Reads and writes in the transaction.
            wakes: Whether gateways have something to do although nothing was sent.
        """

        @wraps(work)
        def noticing(tx: Transaction) -> tuple[T, list[Notice]]:
            listing = NoticingTransaction(tx)
            done = work(listing)
            if wakes or not all(isinstance(each, Refusal) for each in listing.notices):
                self.wakeups.within(tx, self.id)
            return done, listing.notices

        found, notices = await self.database.transact(noticing)
        sent = [each.message.id for each in notices if not isinstance(each, Refusal)]
        if wakes or sent:
            self.wakeups.publish(self.id, sent or [new_id("wake")])
        if notices and self.notify is not None:
            self.notify(notices)
        return found
