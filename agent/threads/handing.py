"""Which member speaks in a conversation, as it is stored; `runtime.speaking` lets it speak (A21)."""

from __future__ import annotations

from typing import Final, Literal

from ...core import Scope
from ...core.errors import InvalidArgument, ThreadPaused
from ...core.scope import MEMBER_ACCOUNT
from ...core.validation import check_integer
from ...memory import thread_key
from ...memory.conversation import Handed
from ...memory.inbox import STEERABLE
from ...storage import Transaction
from ..stores import Stores

Shown = Literal["none", "all"] | int
"""Which of the messages so far a member is shown: none, all, or so many of the last ones."""

SAID: Final = ("message", "answer", "schedule", "word")
"""The kinds of messages that are counted; the results between them come along."""

MAX_SHOWN: Final = 1_000_000
WAIT_SECONDS: Final = 1.0  # seconds that an owner can take to release a thread after its turn has ended
_PAGE: Final = 200


async def handed_in(stores: Stores, thread: str) -> Handed | None:
    """The member that speaks in the next turn of a thread; None is the World Agent.

    Args:
        stores: The stores.
        thread: The key of the thread.
    """
    latest = await stores.turns.latest(thread)
    if latest is not None:
        return latest.handed
    branch = await stores.branches.get(thread)
    return None if branch is None else branch.handed


def check_handing(scope: Scope, messages: object) -> None:
    """Refuse what no conversation can be handed over with.

    Raises:
        InvalidArgument: `messages` is invalid, or the thread is that of a member.
    """
    if not isinstance(messages, str) or messages not in ("none", "all"):
        check_integer("messages", messages, MAX_SHOWN, remedy="pass 'none', 'all' or how many of the last ones to show")
    if (scope.account or "").startswith(MEMBER_ACCOUNT):
        raise InvalidArgument(
            f"{scope.account!r} is the account of a member", remedy="hand over a conversation of a person"
        )


async def hand(stores: Stores, scope: Scope, member: str | None, messages: Shown = "none") -> None:
    """Let another one speak in a conversation from the next turn on.

    Args:
        stores: The stores.
        scope: The thread.
        member: The member, which was checked; None is the World Agent.
        messages: What of the conversation so far the member is shown.

    Raises:
        ThreadBusy: A turn runs.
        ThreadPaused: A turn waits, was stopped or was interrupted.
        InvalidArgument: The thread does not exist yet.
    """
    turns, branches, key = stores.turns, stores.branches, thread_key(scope)
    async with stores.leases.hold(key, wait=WAIT_SECONDS) as lease:
        latest = await turns.latest(key)
        if latest is not None and latest.status in STEERABLE:
            what = "was interrupted" if latest.status == "running" else f"is {latest.status}"
            raise ThreadPaused(f"the turn {latest.id!r} of thread {key!r} {what}", remedy="resume it, or cancel it")
        handed = None if member is None else Handed(member=member, after=await _after(stores, key, messages))

        def write(transaction: Transaction) -> bool:
            return turns.hand(transaction, key, handed) or branches.hand(transaction, key, handed)

        if not await lease.commit(write):
            raise InvalidArgument(f"thread {scope.thread!r} does not exist yet", remedy="send a message on it first")


async def _after(stores: Stores, key: str, messages: Shown) -> int:
    """The depth of the last message that is not shown."""
    head = (await stores.position(key)).head
    if messages == "all" or head is None:
        return -1
    left, before = 0 if messages == "none" else messages, None
    while page := await stores.log.history(head, before=before, limit=_PAGE):
        for message in reversed(page):
            if left == 0:
                return message.depth
            left -= message.kind in SAID
        before = page[0].id
    return -1
