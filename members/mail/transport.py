"""The transport: how a message reaches its receiver. `Society` is the one over an agent's database.

`InMemoryTransport` has no database and no rules about contacts. It is for tests, and for hosts that try things.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import replace
from typing import Protocol

from ...core import Clock, SystemClock
from ...core.errors import PauseExpired
from .letters import MAX_WAITING, mailbox_full
from .messages import RoleMessage

REPLY_SECONDS = 60.0
"""How long `request` waits for a reply, if its caller does not say."""


class RoleTransport(Protocol):
    """Sends messages between members (A3).

    Every message is delivered at least once, in order from each sender to each receiver. A second message with the same
    id has no effect.
    """

    async def send(self, from_id: str, to_id: str, message: RoleMessage, /) -> object:
        """Put a message into the mailbox of its receiver. Its `from_id` and `to_id` become those that are given here.

        Raises:
            MailboxFull: As many messages wait for the receiver as its mailbox holds.
            MessageInvalid: It is to its sender.
        """
        ...

    async def request(
        self, from_id: str, to_id: str, message: RoleMessage, /, *, seconds: float = REPLY_SECONDS
    ) -> RoleMessage:
        """Send a message and wait for the reply: the first message whose `correlation_id` is its id.

        Args:
            from_id: Who sends it.
            to_id: Who receives it.
            message: The message.
            seconds: How long to wait.

        Raises:
            MailboxFull, MessageInvalid: As for `send`.
            PauseExpired: No reply came in time. The message stays where it is.
        """
        ...


class InMemoryTransport:
    """A `RoleTransport` whose mailboxes are in this process, and are lost with it.

    Args:
        most: How many messages can wait for one receiver.
        clock: Source of time.
    """

    def __init__(self, most: int = MAX_WAITING, clock: Clock | None = None) -> None:
        self._most = most
        self._clock = clock or SystemClock()
        self._ids: set[str] = set()
        self._mailboxes: defaultdict[str, deque[RoleMessage]] = defaultdict(deque)
        self._came: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._awaited: dict[tuple[str, str, str], asyncio.Future[RoleMessage]] = {}

    async def send(self, from_id: str, to_id: str, message: RoleMessage, /) -> None:
        """See `RoleTransport.send`."""
        message = replace(message, from_id=from_id, to_id=to_id, timestamp=self._clock.now())
        if message.id in self._ids:
            return
        awaited = self._awaited.pop((message.correlation_id, from_id, to_id), None)
        if awaited is None and len(self._mailboxes[to_id]) >= self._most:
            raise mailbox_full(to_id, self._most)
        self._ids.add(message.id)
        if awaited is not None:
            awaited.set_result(message)
            return
        self._mailboxes[to_id].append(message)
        self._came[to_id].set()

    async def request(
        self, from_id: str, to_id: str, message: RoleMessage, /, *, seconds: float = REPLY_SECONDS
    ) -> RoleMessage:
        """See `RoleTransport.request`. The reply does not go through the mailbox."""
        place = (message.id, to_id, from_id)
        awaited: asyncio.Future[RoleMessage] = asyncio.get_running_loop().create_future()
        self._awaited[place] = awaited
        late = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await self.send(from_id, to_id, message)
            await asyncio.wait((awaited, late), return_when=asyncio.FIRST_COMPLETED)
            if awaited.done():
                return awaited.result()
        finally:
            late.cancel()
            self._awaited.pop(place, None)
        raise no_reply(to_id, message.id, seconds)

    async def receive(self, member_id: str) -> RoleMessage:
        """Wait for the oldest message of a mailbox, and remove it."""
        mailbox = self._mailboxes[member_id]
        while not mailbox:
            self._came[member_id].clear()
            await self._came[member_id].wait()
        return mailbox.popleft()


def no_reply(to_id: str, message_id: str, seconds: float) -> PauseExpired:
    """The error of a request without a reply."""
    return PauseExpired(
        f"{to_id!r} did not reply to {message_id!r} within {seconds:g} seconds",
        remedy="wait longer with `seconds`, or read the reply from the mailbox when it comes",
    )
