"""What the library is given of a client's messages: all but what an error says that the client answers with.

A role may stand there, and the library makes it the status of a span (R7). No transport is known here.
"""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError


def without_text(item: SessionMessage) -> SessionMessage:
    """A client's message; of an error that it answers with, the code alone."""
    if isinstance(item.message, JSONRPCError):
        item.message.error = ErrorData(code=item.message.error.code, message="")
    return item


class Stream:
    """One direction of a connection, as a stream around the transport's own.

    Args:
        inner: The transport's stream.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Received(Stream):
    """What a client sends, each message as `without_text` gives it."""

    @property
    def last_context(self) -> contextvars.Context | None:
        """In what the last message was sent: whose token came with it, over HTTP. The library asks for it by name."""
        found: contextvars.Context | None = getattr(self._inner, "last_context", None)
        return found

    async def receive(self) -> SessionMessage | Exception:
        return _given(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _given(await self._inner.__anext__())


def _given(item: SessionMessage | Exception) -> SessionMessage | Exception:
    return item if isinstance(item, Exception) else without_text(item)


__all__ = ["Received", "Stream", "without_text"]
