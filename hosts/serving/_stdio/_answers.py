"""What passes between a client and the library: which requests are still to be answered, and what is no message.

What messages say is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from anyio import BrokenResourceError, ClosedResourceError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

from .._options import MIB
from .._received import Stream, without_text
from ._lines import LIMIT

_TURNS = 8  # of the loop; what was read last reaches `Incoming` within them

PATIENCE: Final = 5.0
"""Seconds that a client may take to read a refusal before what it sends is read on without more of them."""

_NO_JSON: Final = ErrorData(code=PARSE_ERROR, message="Parse error")
_NO_MESSAGE: Final = ErrorData(code=INVALID_REQUEST, message="Invalid Request")
_TOO_LONG: Final = ErrorData(
    code=INVALID_REQUEST,
    message=f"Invalid Request: the line is longer than {LIMIT} bytes ({LIMIT // MIB} MiB); send less in one message",
)


class Answers:
    """The requests that came in and have no answer yet. The library cancels those when its input ends."""

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
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

    async def given(self) -> None:
        """Wait until every request that was read has its answer."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self._done.wait()

    def _close(self, request_id: Any) -> None:
        if isinstance(request_id, int | str):
            self._open.discard(request_id)
        if not self._open:
            self._done.set()


class Incoming(Stream):
    """What the client sends. What is no message is refused here, and the library sees nothing of it."""

    def __init__(self, inner: Any, answers: Answers, refusals: Refusals) -> None:
        super().__init__(inner)
        self._answers = answers
        self._refusals = refusals

    async def receive(self) -> SessionMessage:
        return await self._message(self._inner.receive)

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage:
        return await self._message(self._inner.__anext__)

    async def _message(self, following: Callable[[], Awaitable[SessionMessage | Exception]]) -> SessionMessage:
        while isinstance(item := await following(), Exception):
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
    """Answers to lines that are no messages, as fast as the client reads them and no faster.

    One is on its way at a time. Where the client does not take it, no more are given until it does: its other lines are
    still read, and the end of its input is found.

    Args:
        outgoing: Where they go.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._giving: asyncio.Task[None] | None = None

    async def give(self, problem: Exception) -> None:
        """Refuse a line, without anything of what stood in it."""
        if self._giving is None or self._giving.done():
            self._giving = asyncio.create_task(self._send(_refusal(problem)))
            await asyncio.wait({self._giving}, timeout=PATIENCE)

    async def _send(self, refusal: JSONRPCError) -> None:
        with suppress(BrokenResourceError, ClosedResourceError):  # the connection has ended
            await self._outgoing.send(SessionMessage(refusal))


def _refusal(problem: Exception) -> JSONRPCError:
    error = _NO_MESSAGE
    if isinstance(problem, ValidationError):
        found = problem.errors(include_input=False, include_url=False, include_context=False)
        kinds = {each["type"] for each in found}
        if "json_type" in kinds:  # it was given no text, but a `TooLong`
            error = _TOO_LONG
        elif "json_invalid" in kinds:
            error = _NO_JSON
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)


__all__ = ["Answers", "Incoming", "Outgoing", "Refusals"]
