"""How a turn ends that no process runs, such as one whose process was killed (T4, T15)."""

from __future__ import annotations

from dataclasses import replace

from ...memory import TurnRecord, TurnStatus
from ...memory.inbox import Inbox, InboxRow
from ...memory.turn_log import TurnLog
from ...storage import Lease, Transaction
from ..stores import Stores


async def end_left(
    stores: Stores, record: TurnRecord, status: TurnStatus, *, lease: Lease, code: str | None = None
) -> bool:
    """End the turn, withdraw what it asks, and let another turn read what its conversation does not have.

    A kill can come after the turn has read messages of its inbox, or was begun by one, and before the conversation
    continues from there. A turn that a person cancels takes them with it, as it would while it runs. One that a message
    interrupts takes what was queued, and what steers or reports stays in the conversation.

    Args:
        stores: The stores.
        record: The turn.
        status: Its new status.
        lease: The lease of its thread.
        code: The code of its error, if it failed.

    Returns:
        Whether messages wait again.
    """
    lost = [] if status == "cancelled" and not record.gentle else await _lost(stores, record)
    if status == "cancelled":
        lost = [row for row in lost if row.kind != "queue"]
    again = any(row.began for row in lost)

    def write(transaction: Transaction, still_open: bool) -> None:
        Inbox.give_back(transaction, [row.id for row in lost])
        if again:
            TurnLog.free_key(transaction, record.id)

    # A background task that begins once more reports the end of that turn alone.
    ended = replace(record, reports=None) if again else record
    await stores.turns.end(ended, status, code=code, lease=lease, each=write)
    await stores.journal.withdraw(record.id)
    return bool(lost)


async def _lost(stores: Stores, record: TurnRecord) -> list[InboxRow]:
    """The messages that the turn has read, or that began it, and that are not in the conversation."""
    taken, beginner = await stores.inbox.taken(record.id), await stores.inbox.beginner(record.id)
    if not taken and beginner is None:
        return []
    kinds: list[str] = []
    head, before = (await stores.position(record.thread)).head, None
    while page := await stores.log.history(head, before=before):
        kinds += [each.kind for each in page if each.turn_id == record.id]
        if page[0].turn_id != record.id:
            break
        before = page[0].id
    began = [] if beginner is None or kinds else [beginner]
    return [*began, *taken[kinds.count("word") :]]


__all__ = ["end_left"]
