"""How messages reach a host and return: streamable HTTP with a bearer token here, a child's streams in `stdio`.

The MCP library reports what HTTP itself answers (access refused, busy, moved) only as texts. Here it becomes an MCP
error whose code is the HTTP status, which `link` reads. Such an error has a text of ours. An error of a host has no
text, whatever its code.
"""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR, JSONRPCError

from .failures import Failure, Failures
from .hosts import LONGEST_ANSWER, Host, HttpHost
from .nesting import readable
from .quiet import without_text
from .stdio import Lost, over_stdio

Item = SessionMessage | Exception

SESSION_GONE: Final = 404
"""The code of the error with which a host reports that it forgot the session and did nothing about the call."""

MADE_HERE: Final = "made here"
"""The text of an MCP error that no host answered, such as one of HTTP. Errors of a host come without text."""

# Servers usually close an idle connection after five seconds, and a request sent at that moment is lost.
_IDLE: Final = 4.0
# A stream of notifications is silent as long as nothing changes.
READ_TIMEOUT_SECONDS: Final = 300.0
# The time limit for ending a session; nothing waits longer for a host that is gone.
CLOSE_TIMEOUT_SECONDS: Final = 2.0
# Bytes. A longer request is not a notification, because those hold a request id at most.
_LONGEST_NOTIFICATION: Final = 4096
# The beginning of the library's text about an answer that can no longer arrive, with the code of a lost connection.
_NO_ANSWER: Final = "SSE stream "
_DATA: Final = b"data:"
_PORTS: Final = {"http": 80, "https": 443}


def open_transport(
    host: Host, failures: Failures, lost: Lost
) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
    """The streams of `host`, open inside the block.

    Args:
        host: The host.
        failures: Makes the failures of the host.
        lost: Called when no more messages can come, with the reason if it is known.
    """
    return _over_http(host, failures, lost) if isinstance(host, HttpHost) else over_stdio(host, failures, lost)


@contextlib.asynccontextmanager
async def _over_http(host: HttpHost, failures: Failures, lost: Lost) -> AsyncGenerator[TransportStreams]:
    async def answered(response: httpx2.Response) -> None:
        said = _said(response) if response.request.method == "POST" else None
        if said is not None:
            _replace(response, said)
        else:
            response.stream = _Checked(response, failures, lost)

    headers = dict(host.headers)
    if host.token is not None:
        headers["Authorization"] = f"Bearer {host.token}"
    async with (
        _Client(
            # Compressed content can be a thousand times as long when it is decompressed.
            headers=headers | {"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(host.timeout, read=READ_TIMEOUT_SECONDS),
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_IDLE),
            event_hooks={"response": [answered]},
        ) as client,
        streamable_http_client(host.url, http_client=client, max_sse_event_size=LONGEST_ANSWER) as (read, write),
    ):
        yield Incoming(read, _without_host_text), write


def _without_host_text(item: Item) -> Item:
    """Return the item without a host's error text. An error that was made in this process is marked."""
    error = item.message.error if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCError) else None
    made_here = error is not None and (
        error.message == MADE_HERE or (error.code == CONNECTION_CLOSED and error.message.startswith(_NO_ANSWER))
    )
    item = without_text(item)
    if error is not None and made_here:
        error.message = MADE_HERE
    return item


class _Client(httpx2.AsyncClient):
    """A client that waits for unanswered messages at most as long as a call can take.

    While the library waits for a notification to be accepted, it sends nothing else. A host that does not accept one is
    no reason to close the connection, which the error would cause.
    """

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(CLOSE_TIMEOUT_SECONDS).as_dict()
        if not _is_notification(request):
            return await super().send(request, **more)
        request.extensions["timeout"] |= {"read": self.timeout.connect}
        with contextlib.suppress(httpx2.ReadTimeout):
            return await super().send(request, **more)
        return httpx2.Response(202, request=request)


def _is_notification(request: httpx2.Request) -> bool:
    if request.method != "POST" or len(request.content) > _LONGEST_NOTIFICATION:
        return False
    return "id" not in json.loads(request.content)


def _said(response: httpx2.Response) -> dict[str, Any] | None:
    """The MCP error for what HTTP itself answers; None if the body is the answer."""
    status, headers = response.status_code, response.headers
    after = headers.get("retry-after", "")
    if status in (401, 403):
        return {"code": status}
    if status == 404 and "mcp-session-id" in response.request.headers:
        return {"code": SESSION_GONE}
    if status in (429, 503):
        return {"code": status, "data": int(after) if after.isascii() and after.isdigit() and len(after) < 6 else None}
    if response.has_redirect_location and not _stays(response):
        return {"code": 302}
    if headers.get("content-encoding", "identity") != "identity":
        return {"code": PARSE_ERROR}
    if status >= 500 and not headers.get("content-type", "").lower().startswith("application/json"):
        return {"code": status}
    return None


def _stays(response: httpx2.Response) -> bool:
    """Whether the MCP library follows this redirect: it keeps the origin, and the message is sent again."""
    try:
        here = response.request.url
        there = here.join(response.headers["location"])
    except httpx2.InvalidURL:
        return False
    same = (here.scheme, here.host, _port(here)) == (there.scheme, there.host, _port(there))
    upgrade = (here.scheme, there.scheme, here.host) == (
        "http",
        "https",
        there.host,
    ) and here.port is there.port is None
    return response.status_code in (307, 308) and (same or upgrade) and not there.userinfo


def _port(url: httpx2.URL) -> int | None:
    return url.port or _PORTS.get(url.scheme)


def _replace(response: httpx2.Response, error: dict[str, Any]) -> None:
    """Let the library read `error` instead of the host's body."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"message": MADE_HERE, **error}}
    response.stream = _Instead(response.stream, json.dumps(body).encode())
    response.status_code = 400
    response.headers = httpx2.Headers({"content-type": "application/json"})


class _Instead(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, body: bytes) -> None:
        self._stream = stream
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class _Checked(httpx2.AsyncByteStream):
    """A body that ends when it gets too long.

    In an event stream each event can have this length. Bytes that are not UTF-8, which the library would replace, end
    it.
    """

    def __init__(self, response: httpx2.Response, failures: Failures, lost: Lost) -> None:
        self._stream: Any = response.stream
        self._events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        self._failures = failures
        self._lost = lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length, decoder, held = 0, codecs.getincrementaldecoder("utf-8")(), bytearray()
        async for chunk in self._stream:
            length = len(chunk) if self._events and b"\n" in chunk else length + len(chunk)
            if length > LONGEST_ANSWER:
                self._end(self._failures.oversized())
            if self._events and not _is_valid_utf8_so_far(decoder, chunk):
                self._end(self._failures.garbled())
            held += chunk
            end = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            if self._events and end:
                complete_end = len(held) - len(chunk) + end
                lines = bytes(held[:complete_end]).splitlines(keepends=True)
                del held[:complete_end]
                yield b"".join([await _readable_line(line) for line in lines])
        yield bytes(held) if self._events else await readable(bytes(held))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def _end(self, why: Failure) -> NoReturn:
        self._lost(why)
        # The library treats this error as the failure of this one request.
        raise httpx2.StreamError("the body is not read further")


async def _readable_line(line: bytes) -> bytes:
    """A line of an event stream, with its message changed by `readable`."""
    if not line.startswith(_DATA):
        return line
    message = line[len(_DATA) :]
    changed = await readable(message)
    return line if changed is message else _DATA + changed + b"\n"


def _is_valid_utf8_so_far(decoder: codecs.IncrementalDecoder, chunk: bytes) -> bool:
    try:
        decoder.decode(chunk)
    except UnicodeDecodeError:
        return False
    return True


class Incoming:
    """The messages of a host, each changed as it arrives.

    Args:
        stream: The messages.
        change: Returns the replacement of a message.
    """

    def __init__(self, stream: ReadStream[Item], change: Callable[[Item], Item]) -> None:
        self._stream = stream
        self._change = change

    @property
    def last_context(self) -> object:
        """The library runs code for a message in its sender's context, if the stream knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Item:
        """The next message."""
        return self._change(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return self._change(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
