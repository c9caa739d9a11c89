"""Branches of threads: which message a branch begins at, and its name. `runtime.branches` begins turns on them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from ...core import Scope, check_id
from ...core.errors import InvalidArgument, NameTaken, ThreadBusy
from ...harness.limits import Usage
from ...memory import Message, thread_key
from ...storage import Lease
from ..stores import Stores
from .handing import handed_in

NAME_WAIT_SECONDS: Final = 1.0  # seconds to wait for the owner of a requested name
PAGE_MESSAGES: Final = 50
MAX_BASE_NAME_CHARACTERS: Final = 180  # characters of a name before the added number; a name can have 200


@dataclass(frozen=True, slots=True)
class Branching:
    """Creates branches of threads.

    Attributes:
        stores: The stores of the database.
        usage: Counts forks among the threads that an account begins; None counts nothing.
    """

    stores: Stores
    usage: Usage | None = None

    async def fork(self, scope: Scope, *, at: str | None, to: str | None) -> Scope:
        """Create a thread that continues from a message of another one.

        Args:
            scope: The other thread.
            at: The message's id; None is the newest.
            to: The new thread's id; None makes one.

        Returns:
            The new thread's scope.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: The thread has no message, or `to` is not a valid id.
            NameTaken, ThreadBusy: The thread `to` exists, or another call is creating it.
            LimitReached: The account, or the workspace, begins too many threads today.
        """
        head, handed = await self.find(scope, at), await handed_in(self.stores, thread_key(scope))
        if handed is not None:
            handed = replace(handed, after=min(handed.after, head.depth))
        async with AsyncExitStack() as held:
            new, lease = await self.claim(held, scope, to, "to")
            branch = self.stores.branches.branch(thread_key(new), head.id, origin=thread_key(scope), handed=handed)
            if self.usage is not None:
                await self.usage.store(scope, size=0, threads=1)
            await self.stores.branches.add(branch, lease=lease)
        return new

    async def find(self, scope: Scope, at: str | None, kinds: Collection[str] = ()) -> Message:
        """Return a message of a thread.

        Args:
            scope: The thread.
            at: The message's id; None is the newest of `kinds`.
            kinds: The kinds of message to accept; empty accepts all.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: `at` is of another kind, or the thread has no message of `kinds`.
        """
        head = (await self.stores.position(thread_key(scope))).head
        if at is None:
            newest = await self._newest(head, kinds)
            if newest is not None:
                return newest
            what = f"message of kind {' or '.join(kinds)}" if kinds else "message"
            raise InvalidArgument(f"thread {scope.thread!r} has no {what}", remedy="send a message on it first")
        if not isinstance(at, str):
            raise InvalidArgument(f"`at` must be a string, got {type(at).__name__!r}", remedy="pass a message's id")
        if at != head:
            await self.stores.log.history(head, before=at, limit=1)  # raises if the message is not in this conversation
        [found] = await self.stores.log.history(at, limit=1)
        if kinds and found.kind not in kinds:
            raise InvalidArgument(
                f"the message {found.id!r} is of kind {found.kind!r}",
                remedy=f"pass the id of one of kind {' or '.join(kinds)}, from the thread's history",
            )
        return found

    async def claim(self, held: AsyncExitStack, scope: Scope, wanted: str | None, name: str) -> tuple[Scope, Lease]:
        """Acquire a name that no thread has.

        Args:
            held: Releases the name when it exits.
            scope: The thread to branch.
            wanted: The name; None makes one from the thread's own name and a number.
            name: The argument's name, for errors about `wanted`.

        Raises:
            InvalidArgument: `wanted` is not a valid id.
            NameTaken, ThreadBusy: The thread `wanted` exists, or another call is creating it.
        """
        if wanted is not None:
            new = replace(scope, thread=check_id(name, wanted))
            lease = await self._claimed(held, thread_key(new), NAME_WAIT_SECONDS)
            if lease is None:
                raise NameTaken(
                    f"the thread {wanted!r} exists already",
                    remedy=f"pass a name in `{name}` that no thread has, or omit it",
                )
            return new, lease
        first = 2 + await self.stores.branches.count(thread_key(scope))
        for number in count(first):
            new = replace(scope, thread=f"{(scope.thread or '')[:MAX_BASE_NAME_CHARACTERS]}.{number}")
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
            lease = await claimed.enter_async_context(self.stores.leases.hold(key, wait=wait))
            if await self._taken(key):  # its owner until now has created the thread
                return None
            held.push_async_exit(claimed.pop_all())
            return lease

    async def _taken(self, key: str) -> bool:
        # Homes of older versions have threads that only checkpoints show.
        return await self.stores.branches.taken(key) or await (await self.stores.find_heads()).values(key) is not None

    async def _newest(self, head: str | None, kinds: Collection[str]) -> Message | None:
        before: str | None = None
        while page := await self.stores.log.history(head, before=before, limit=PAGE_MESSAGES):
            for message in reversed(page):
                if not kinds or message.kind in kinds:
                    return message
            before = page[0].id
        return None
