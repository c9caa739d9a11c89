"""The streams of messages of a host, as it wrote them and no longer than they may be. `_wire` speaks MCP over them.

Not those of `mcp_client`, which take the texts out of errors; a check looks at these too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from ....mcp_client import LONGEST_ANSWER, HttpHost, StdioHost
from ._program import Program

IN_ALL: Final = 64 << 20  # bytes; a sound host sends a few MiB in a whole check
_UNASKED: Final = 1000  # lines in a row that answer nothing
_SILENCE: Final = 300.0  # seconds; a stream of notices is silent while nothing changes
_FAREWELL: Final = 2.0
_TOO_MUCH: Final = f"it sent more than {LONGEST_ANSWER >> 20} MiB in one message"


class Intake:
    """Counts what a host sends over all connections of one check, most of which is kept to its end.

    Args:
        left: Bytes that it may send.
    """

    def __init__(self, left: int = IN_ALL) -> None:
        self._all = self._left = left

    def take(self, size: int) -> str:
        """Count `size` bytes; what is wrong, where they are too many."""
        self._left -= size
        return f"it sent more than {self._all >> 20} MiB in all" if self._left < 0 else ""


class Listener:
    """Is told what the transport sees of a host, apart from messages.

    Args:
        intake: Counts what comes.

    Attributes:
        status: The last HTTP status; None over stdio and before.
        excess: In which way the host sent more than is read; empty where it did not.
    """

    def __init__(self, intake: Intake) -> None:
        self.status: int | None = None
        self.excess = ""
        self._intake = intake

    def take(self, size: int, of_message: int) -> bool:
        """Count `size` bytes of a message of which `of_message` have come; whether to read on."""
        self.excess = self.excess or self._intake.take(size) or (_TOO_MUCH if of_message > LONGEST_ANSWER else "")
        return not self.excess


@contextlib.asynccontextmanager
async def over_stdio(host: StdioHost, listener: Listener, grace: float) -> AsyncGenerator[TransportStreams]:
    """Start a program and give its streams; afterwards it is gone, `grace` seconds after its input was closed."""
    program = await Program.start(host)
    try:
        yield _Incoming(program.stdout, listener), _Outgoing(program.stdin)
    finally:
        await program.end(grace)


@contextlib.asynccontextmanager
async def over_http(host: HttpHost, listener: Listener, limit: float) -> AsyncGenerator[TransportStreams]:
    """Give the streams of a host at an address; connecting to it may take `limit` seconds."""

    async def asking(request: httpx2.Request) -> None:
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(_FAREWELL).as_dict()

    async def answered(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            listener.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            listener.excess = "it sent a packed answer, which may be of any length"
        response.stream = _Bounded(response, listener)

    async with (
        httpx2.AsyncClient(
            verify=certificates(),
            headers=authorised(host.token) | {"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(limit, read=_SILENCE),
            event_hooks={"request": [asking], "response": [answered]},
        ) as client,
        streamable_http_client(host.url, http_client=client, max_sse_event_size=LONGEST_ANSWER) as streams,
    ):
        yield streams


@cache
def certificates() -> ssl.SSLContext:
    """The certificates that this machine trusts. Reading them takes longer than all else that a connection needs."""
    return httpx2.create_ssl_context()


def authorised(token: str | None) -> dict[str, str]:
    """The headers that show a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class _Bounded(httpx2.AsyncByteStream):
    """A body that is not read any further where it gets too long; of a stream of events, each of them."""

    def __init__(self, response: httpx2.Response, listener: Listener) -> None:
        self._stream: Any = response.stream
        self._events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        self._listener = listener

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._stream:
            length = len(chunk) if self._events and b"\n" in chunk else length + len(chunk)
            if not self._listener.take(len(chunk), length):
                # Of the kind that the library takes as the failure of this one request.
                raise httpx2.StreamError("not read any further")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Open:
    """What both directions of a child's streams have in common: they are closed with the child."""

    async def aclose(self) -> None:
        """Nothing; see above."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class _Incoming(_Open):
    """The messages that a child writes. A line that is none comes out as an error without its text."""

    def __init__(self, stdout: asyncio.StreamReader, listener: Listener) -> None:
        self._stdout = stdout
        self._listener = listener
        self._unasked = 0

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        line = b"\n"
        while not line.strip():
            await asyncio.sleep(0)  # a child that writes without end is not all that this loop has to do
            line = await self._line()
        self._unasked += 1
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return ValueError("no message of MCP")
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._unasked = 0
        return SessionMessage(message)

    async def _line(self) -> bytes:
        line = b""
        try:
            line = await self._stdout.readline()
            self._listener.take(len(line), len(line))
        except ValueError:
            self._listener.take(LONGEST_ANSWER, LONGEST_ANSWER + 1)
        except OSError:
            pass
        if self._unasked > _UNASKED:
            self._listener.excess = f"it wrote {_UNASKED:,} lines in a row that answer nothing"
        if self._listener.excess or not line.endswith(b"\n"):
            raise StopAsyncIteration
        return line


class _Outgoing(_Open):
    """The messages to a child."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin

    async def send(self, item: SessionMessage, /) -> None:
        self._stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # its output tells of its end
            await self._stdin.drain()


__all__ = ["Intake", "Listener", "authorised", "certificates", "over_http", "over_stdio"]
