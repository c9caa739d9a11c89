"""Which requests of a connection are still to be answered. It looks at ids only, and changes no message."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

_TURNS = 8  # of the loop; what was read last reaches `Incoming` within them


class Answers:
    """The requests that came in and have no answer yet. The library cancels those when its input ends."""

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._done = asyncio.Event()
        self._done.set()

    def came(self, item: SessionMessage | Exception) -> None:
        """Note a message of the client's."""
        message = item.message if isinstance(item, SessionMessage) else None
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


class _Stream:
    """One direction of a connection."""

    def __init__(self, inner: Any, answers: Answers) -> None:
        self._inner = inner
        self._answers = answers

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Incoming(_Stream):
    """What the client sends."""

    async def receive(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._inner.receive()
        self._answers.came(item)
        return item

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._inner.__anext__()
        self._answers.came(item)
        return item


class Outgoing(_Stream):
    """What the client is sent."""

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        self._answers.went(item)


__all__ = ["Answers", "Incoming", "Outgoing"]
