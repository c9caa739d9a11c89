"""What passes between a client and the library: which requests are still to be answered, and what is refused.

What messages say is not known here, and neither is which are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from anyio import BrokenResourceError, ClosedResourceError
from mcp.shared.dispatcher import as_request_id
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from .._received import Stream, without_text
from ._lines import Lines
from ._taking import taken

_TURNS = 8  # of the loop; what was read last reaches `Incoming` within them

PATIENCE: Final = 5.0
"""Seconds that a client may take to read a refusal before what it sends is read on without more of them."""

MANY: Final = 1000
"""Refusals under an id that are kept for a client that does not read."""


class Answers:
    """The requests that came in and have no answer yet. The library cancels those when its input ends."""

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._refusing = False
        self._done = asyncio.Event()
        self._done.set()

    def came(self, item: SessionMessage) -> None:
        """Note a message of the client's."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._open.add(message.id)
            self._done.clear()
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._close((message.params or {}).get("requestId"))

    def went(self, item: SessionMessage) -> None:
        """Note a message of ours."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._close(item.message.id)

    def refusing(self, now: bool) -> None:
        """Note whether refusals are on their way."""
        self._refusing = now
        self._done.clear()
        self._settle()

    async def given(self) -> None:
        """Wait until every request that was read has its answer, or is refused."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self._done.wait()

    def _close(self, given: object) -> None:
        request_id = as_request_id(given)
        if request_id is not None:
            self._open.discard(request_id)
        self._settle()

    def _settle(self) -> None:
        if not self._open and not self._refusing:
            self._done.set()


class Incoming(Stream):
    """What the client sends. What is refused is refused here, and the library sees nothing of it.

    Args:
        inner: What the library made of the lines, of each one thing and in their order.
        lines: Those lines.
        answers: Told of each message.
        refusals: Given what the client is told.
    """

    def __init__(self, inner: Any, lines: Lines, answers: Answers, refusals: Refusals) -> None:
        super().__init__(inner)
        self._lines = lines
        self._answers = answers
        self._refusals = refusals

    async def receive(self) -> SessionMessage:
        return await self._message(self._inner.receive)

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage:
        return await self._message(self._inner.__anext__)

    async def _message(self, following: Callable[[], Awaitable[SessionMessage | Exception]]) -> SessionMessage:
        while isinstance(item := taken(await following(), self._lines.handed.popleft()), JSONRPCError):
            await self._refusals.give(item)
        self._answers.came(item)
        return without_text(item)


class Outgoing(Stream):
    """What the client is sent."""

    def __init__(self, inner: Any, answers: Answers) -> None:
        super().__init__(inner)
        self._answers = answers

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        self._answers.went(item)


class Refusals:
    """Answers to lines that are refused, as fast as the client reads them and no faster.

    One is on its way at a time. Where the client does not take it, its other lines are still read, and the end of its
    input is found. Until it does, no more are given but those under an id, for which a caller waits: of these the last
    `MANY` are kept.

    Args:
        outgoing: Where they go. It is not one that notes answers: a call may have the same id, and has none yet.
        answers: Told whether some are on their way.
    """

    def __init__(self, outgoing: Any, answers: Answers) -> None:
        self._outgoing = outgoing
        self._answers = answers
        self._left: deque[JSONRPCError] = deque(maxlen=MANY)
        self._giving: asyncio.Task[None] | None = None

    async def give(self, refusal: JSONRPCError) -> None:
        """Send it, and wait a while until the client has it."""
        idle = self._giving is None or self._giving.done()
        if idle or refusal.id is not None:
            self._left.append(refusal)
        if idle:
            self._answers.refusing(True)
            self._giving = asyncio.create_task(self._send())
            await asyncio.wait({self._giving}, timeout=PATIENCE)

    async def _send(self) -> None:
        with suppress(BrokenResourceError, ClosedResourceError):  # the connection has ended
            while self._left:
                await self._outgoing.send(SessionMessage(self._left.popleft()))
        self._answers.refusing(False)


__all__ = ["Answers", "Incoming", "Outgoing", "Refusals"]
