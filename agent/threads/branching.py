"""Branching threads off: which message a branch begins at, and which name it gets. No engine and no model.

What is written is one row a thread (`memory.branches`). Running a turn on a branch is `runtime`'s matter.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from ...core import Scope, check_id
from ...core.errors import InvalidArgument, NameTaken, ThreadBusy
from ...memory import ConversationStore, Message, thread_key
from ...memory.branches import Branches
from ...storage import Lease, Leases

if TYPE_CHECKING:
    from ...graphs.heads import Heads  # its folder loads langgraph

_WAIT: Final = 1.0  # seconds for the owner of a name that is asked for
_PAGE: Final = 50
_LONGEST: Final = 180  # letters of a name that a number is put after; a name may have 200


@dataclass(frozen=True, slots=True)
class Branching:
    """Branches threads off.

    Attributes:
        leases: Who owns threads.
        branches: The rows of branches.
        heads: Where conversations end.
        log: What was said.
    """

    leases: Leases
    branches: Branches
    heads: Heads
    log: ConversationStore

    async def fork(self, scope: Scope, *, at: str | None, to: str | None) -> Scope:
        """Make a thread that goes on from a message of another one.

        Args:
            scope: The other one.
            at: The message's id; None is the newest.
            to: The new thread's id; None makes one.

        Returns:
            The new thread's scope.

        Raises:
            UnknownMessage: `at` is not one of the thread's.
            InvalidArgument: The thread has no message, or `to` is no id.
            NameTaken, ThreadBusy: There is a thread `to`, or somebody is beginning one.
        """
        head = (await self.find(scope, at)).id
        async with AsyncExitStack() as held:
            new, lease = await self.claim(held, scope, to, "to")
            branch = self.branches.branch(thread_key(new), head, origin=thread_key(scope))
            await self.branches.add(branch, lease=lease)
        return new

    async def find(self, scope: Scope, at: str | None, kinds: Collection[str] = ()) -> Message:
        """A message of a thread.

        Args:
            scope: The thread.
            at: The message's id; None is the newest of `kinds`.
            kinds: What it may be; empty is anything.

        Raises:
            UnknownMessage: `at` is not one of the thread's.
            InvalidArgument: `at` is of another kind, or the thread has no message of `kinds`.
        """
        head = (await self.heads.position(thread_key(scope))).head
        if at is None:
            newest = await self._newest(head, kinds)
            if newest is not None:
                return newest
            what = f"message of kind {' or '.join(kinds)}" if kinds else "message"
            raise InvalidArgument(f"thread {scope.thread!r} has no {what}", remedy="say something on it first")
        if not isinstance(at, str):
            raise InvalidArgument(f"at= is of type {type(at).__name__!r}", remedy="give the id of a message")
        if at != head:
            await self.log.history(head, before=at, limit=1)  # refuses what is not of this conversation
        [found] = await self.log.history(at, limit=1)
        if kinds and found.kind not in kinds:
            raise InvalidArgument(
                f"the message {found.id!r} is of kind {found.kind!r}",
                remedy=f"give the id of one of kind {' or '.join(kinds)}, as the thread's history tells it",
            )
        return found

    async def claim(self, held: AsyncExitStack, scope: Scope, wanted: str | None, name: str) -> tuple[Scope, Lease]:
        """Come to own a name that no thread has.

        Args:
            held: Lets go of it.
            scope: The thread that is branched off.
            wanted: The name; None makes one, of the thread's own and a number.
            name: What `wanted` is called where it was given.

        Raises:
            InvalidArgument: `wanted` is no id.
            NameTaken, ThreadBusy: There is a thread `wanted`, or somebody is beginning one.
        """
        if wanted is not None:
            new = replace(scope, thread=check_id(name, wanted))
            lease = await self._claimed(held, thread_key(new), _WAIT)
            if lease is None:
                raise NameTaken(
                    f"there is a thread {wanted!r}",
                    remedy=f"give a name in `{name}` that no thread has, or leave it out",
                )
            return new, lease
        first = 2 + await self.branches.count(thread_key(scope))
        for number in count(first):
            new = replace(scope, thread=f"{(scope.thread or '')[:_LONGEST]}.{number}")
            try:
                lease = await self._claimed(held, thread_key(new), 0)
            except ThreadBusy:
                continue
            if lease is not None:
                return new, lease
        raise AssertionError("numbers do not end")

    async def _claimed(self, held: AsyncExitStack, key: str, wait: float) -> Lease | None:
        if await self._taken(key):
            return None
        async with AsyncExitStack() as claimed:
            lease = await claimed.enter_async_context(self.leases.hold(key, wait=wait))
            if await self._taken(key):  # by whoever owned it until now
                return None
            held.push_async_exit(claimed.pop_all())
            return lease

    async def _taken(self, key: str) -> bool:
        # Homes of older versions have threads of which checkpoints alone know.
        return await self.branches.taken(key) or await self.heads.values(key) is not None

    async def _newest(self, head: str | None, kinds: Collection[str]) -> Message | None:
        before: str | None = None
        while page := await self.log.history(head, before=before, limit=_PAGE) if head is not None else ():
            for message in reversed(page):
                if not kinds or message.kind in kinds:
                    return message
            before = page[0].id
        return None
