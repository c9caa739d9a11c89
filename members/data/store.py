"""The database of a workspace's members, whose transactions announce the messages in them (H5).

What was sent and refused becomes events: of the turn whose call sent it, or of a trace without a turn. An event has
ids, types and counts. The text of a message goes to the trace alone, and only if inputs are captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...core import Clock, Emitter, SystemClock, new_id
from ...core.events import MessageRefused, MessageSent
from ...storage import Database, Transaction
from ..mail.wakeups import DatabaseWakeups, Wakeups
from .workspace import WorkspaceConfig

if TYPE_CHECKING:
    from ..mail.letters import Letter

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A message that was refused.

    Attributes:
        code: The code of the error.
        sender: Who sent it; empty if the id is not in the workspace.
        receiver: Who was to receive it; empty if the id is not in the workspace.
    """

    code: str
    sender: str
    receiver: str


Notice: TypeAlias = "Letter | Refusal"
Notify = Callable[[Sequence[Notice]], None]


class NoticingTransaction(Transaction):
    """A transaction that lists what was sent and refused in it, in order.

    Args:
        tx: The transaction.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.notices: list[Notice] = []

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See `Transaction.execute`."""
        return self._tx.execute(sql, params)

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        """See `Transaction.hold`."""
        return self._tx.hold(sql, params, alone=alone)

    def lock(self, name: str) -> None:
        """See `Transaction.lock`."""
        self._tx.lock(name)


def note(tx: Transaction, notice: Notice) -> None:
    """Add a notice to a transaction that lists them."""
    if isinstance(tx, NoticingTransaction):
        tx.notices.append(notice)


def emit_notices(emit: Emitter, notices: Sequence[Notice], *, call_id: str = "") -> None:
    """Emit one event for each notice.

    Args:
        emit: Emits the events.
        notices: The notices.
        call_id: The path id of the call that sent the messages; empty if none did.
    """
    for notice in notices:
        if isinstance(notice, Refusal):
            about = {"code": notice.code, "sender": notice.sender, "receiver": notice.receiver}
            emit(MessageRefused, call_id=call_id, **about)
            continue
        message = notice.message
        given = message.to_json()
        emit.keep(message.id, "inputs", {name: given[name] for name in ("content", "payload")})
        introduced = message.payload.get("target_id") if message.message_type == "introduction_response" else None
        emit(
            MessageSent,
            message_id=message.id,
            sender=message.from_id,
            receiver=message.to_id,
            message_type=message.message_type or message.type,
            answers=message.correlation_id,
            introduces=introduced or "",
            chain=notice.chain,
            call_id=call_id,
        )


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
        limited: Whether something in the workspace has limits, as it was when a member or an event was read last (A16).
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
        self.limited = False

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
