"""How messages reach a host and return: streamable HTTP with a bearer token, or the streams of a child process.

The MCP library reports what HTTP itself answers (access refused, busy, moved) only as texts. Here it becomes an MCP
error whose code is the HTTP status, which `link` reads. Such an error has a text of ours. An error of a host has no
text, whatever its code.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import contextvars
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

import httpx2
from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR, JSONRPCError, JSONRPCNotification, jsonrpc_message_adapter

from .hosts import LONGEST_ANSWER, Failure, Failures, Host, HttpHost, StdioHost
from .readable import readable
from .tls import trusted

Item = SessionMessage | Exception

# --- quiet logs -------------------------------------------------------------------------------------------------------

_WITHHELD: Final = "the text of this record is withheld: it may hold a role"

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("worldagent_role_host", default=False)

# First parts of the logger names of these libraries. The logger of `mcp.client.session` is called `client`.
_NAMES: Final = ("mcp", "client", "httpx2", "httpcore2")
# Loggers that a library creates late, for example when a call first uses a proxy.
_LATE: Final = ("connection", "http11", "http2", "proxy", "socks")


class _Withhold(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _inside.get():
            return True
        record.msg, record.args = _WITHHELD, None
        record.exc_info = record.exc_text = record.stack_info = None
        return record.levelno >= logging.ERROR and logging.getLogger(record.name).hasHandlers()


_FILTER: Final = _Withhold()


def quieten() -> None:
    """Add the filter to each existing logger. Filters are not inherited, so every logger needs its own."""
    names = [*_NAMES, *(f"httpcore2.{name}" for name in _LATE)]
    names += [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in _NAMES]
    for name in names:
        logging.getLogger(name).addFilter(_FILTER)  # adding it twice has no effect


def quiet_context() -> contextvars.Context:
    """An empty context in which log records of the libraries are withheld.

    It is empty because a connection outlives the call that opened it. So it keeps no span, tracer or turn of that call.
    """
    quieten()
    context = contextvars.Context()
    context.run(_inside.set, True)
    return context


def without_text(item: Item) -> Item:
    """Return what a host sent without the text of an error. The code and data of the error remain."""
    if isinstance(item, Exception):
        return ValueError("not an MCP message")
    if isinstance(item.message, JSONRPCError):
        item.message.error.message = ""
    return item


# --- streams of messages ----------------------------------------------------------------------------------------------


class Incoming(ObjectReceiveStream[Item]):
    """The messages of a host, each changed as it arrives.

    Args:
        stream: The messages.
        change: Returns the replacement of a message.
    """

    def __init__(self, stream: ReadStream[Item], change: Callable[[Item], Awaitable[Item]]) -> None:
        self._stream = stream
        self._change = change

    @property
    def last_context(self) -> object:
        """The library runs code for a message in its sender's context, if the stream knows it."""
        return getattr(self._stream, "last_context", None)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def receive(self) -> Item:
        return await self._change(await self._stream.receive())


# --- a child process --------------------------------------------------------------------------------------------------

Lost = Callable[[Failure | None], None]

# Seconds that a child gets to end after its input is closed, and again after a signal asks it to.
_GRACE: Final = 2.0
_LAST_GRACE: Final = 1.0
# The limit of consecutive lines that are not messages; a program that writes more is not an MCP host.
_STRAY: Final = 1000
_KILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@contextlib.asynccontextmanager
async def over_stdio(host: StdioHost, failures: Failures, lost: Lost) -> AsyncGenerator[TransportStreams]:
    """Start the program and yield its streams. When the block ends, the program has ended.

    Args:
        host: The program.
        failures: Makes the failures of the host.
        lost: Called when no more messages can come, with the reason if it is known.

    Raises:
        OSError: The program cannot be started.
    """
    loop = asyncio.get_running_loop()
    child, streams = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(LONGEST_ANSWER, loop),
        *host.argv,
        stderr=_errors_of(host),
        env=get_default_environment() | dict(host.env or {}),
        cwd=host.cwd,
        start_new_session=True,
    )
    assert streams.stdin is not None
    assert streams.stdout is not None
    outgoing = _Outgoing(streams.stdin, host.timeout, failures, lost)
    try:
        yield _Lines(streams.stdout, failures, lost), outgoing
    finally:
        await outgoing.aclose()
        await _end(child, streams.stdin)


def _errors_of(host: StdioHost) -> int:
    """Return what receives the standard error of the child. Ours can be replaced by an object that is not a file."""
    if host.stderr == "inherit":
        with contextlib.suppress(AttributeError, OSError):
            return sys.stderr.fileno()
    return DEVNULL


async def _end(child: asyncio.SubprocessTransport, stdin: asyncio.StreamWriter) -> None:
    """Close its input, ask it to end, then kill it, with a wait before each step.

    If the task is cancelled, kill it at once.
    """
    try:
        stdin.close()
        if not await _ended(child, _GRACE):
            _signal(child, signal.SIGTERM)
            await _ended(child, _LAST_GRACE)
    finally:
        if child.get_returncode() is None:
            _signal(child, _KILL)
        if stdin.transport.get_write_buffer_size():
            stdin.transport.abort()  # otherwise it stays open until the child has read everything
        with contextlib.suppress(PermissionError):  # if the child has become another user
            child.close()  # this also closes the pipes, which a grandchild can still hold
        await _ended(child, _GRACE)


async def _ended(child: asyncio.SubprocessTransport, seconds: float) -> bool:
    # Polled, because asyncio waits for the end of the pipes too, and grandchildren can hold these open.
    for _ in range(int(seconds * 100)):
        if child.get_returncode() is not None:
            return True
        await asyncio.sleep(0.01)
    return child.get_returncode() is not None


def _signal(child: asyncio.SubprocessTransport, number: signal.Signals) -> None:
    """Send a signal to the process group of the child, which includes its own children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # Windows has neither process groups nor these signals
            child.terminate()
        else:
            os.killpg(child.get_pid(), number)
            os.killpg(child.get_pid(), signal.SIGCONT)  # a stopped process handles no other signal


class _Lines(ObjectReceiveStream[Item]):
    """The messages that the child writes. A line that is not a message becomes an error without its text."""

    def __init__(self, stdout: asyncio.StreamReader, failures: Failures, lost: Lost) -> None:
        self._stdout = stdout
        self._failures = failures
        self._lost = lost
        self._stray = 0

    async def aclose(self) -> None:
        """Do nothing: the stream ends with the child."""

    async def receive(self) -> Item:
        line = b"\n"
        while not line.strip():
            await asyncio.sleep(0)  # a child that writes without end must not block this loop
            line = await self._line()
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(await readable(line), by_name=False))
        except ValueError:
            self._stray += 1
            return ValueError("not an MCP message")
        self._stray = 0
        return without_text(message)

    async def _line(self) -> bytes:
        """The next line that the child wrote. A line without an end is the last one."""
        why: Failure | None = None
        try:
            line = await self._stdout.readline()
        except ValueError:
            line, why = b"", self._failures.oversized()
        if self._stray > _STRAY:
            line, why = b"", self._failures.stray()
        if not line.endswith(b"\n"):
            self._lost(why)
            raise EndOfStream
        return line


class _Outgoing(ObjectSendStream[SessionMessage]):
    """The messages to the child.

    It holds at most one that the child does not read, and for no longer than a call can take.
    """

    def __init__(self, stdin: asyncio.StreamWriter, timeout: float, failures: Failures, lost: Lost) -> None:
        self._stdin = stdin
        self._timeout = timeout
        self._failures = failures
        self._lost = lost
        self._turn = asyncio.Lock()
        self._limit: asyncio.TimerHandle | None = None

    async def send(self, item: SessionMessage) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(item.message, JSONRPCNotification):
            # Usually a cancellation notice. No caller waits for it, and a child that reads nothing does not get it.
            if not self._full:
                self._stdin.write(line)
            return
        async with self._turn:
            try:
                await self._drained()
                self._stdin.write(line)
                await self._drained()
            except ConnectionError:
                self._lost(None)

    async def _drained(self) -> None:
        """Wait until the child has read its input. The time limit also applies after the caller has stopped waiting."""
        if self._limit is None:
            loop = asyncio.get_running_loop()
            self._limit = loop.call_later(self._timeout, self._give_up)
        await self._stdin.drain()
        self._stop_limit()

    @property
    def _full(self) -> bool:
        pipe = self._stdin.transport
        return pipe.get_write_buffer_size() > pipe.get_write_buffer_limits()[1]

    def _give_up(self) -> None:
        self._limit = None
        if self._full:
            self._lost(self._failures.unavailable("does not read what is sent to it", self._failures.restart))

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    async def aclose(self) -> None:
        self._stop_limit()
        self._stdin.close()


# --- HTTP -------------------------------------------------------------------------------------------------------------

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

FIRST_TRY: Final = "worldagent_first_try"
"""The extension of a request that is sent again with another token if the host refuses this one."""


def open_transport(
    host: Host, failures: Failures, lost: Lost, auth: httpx2.Auth | None = None
) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
    """The streams of `host`, open inside the block.

    Args:
        host: The host.
        failures: Makes the failures of the host.
        lost: Called when no more messages can come, with the reason if it is known.
        auth: Sends a token with each request; see `oauth`.
    """
    return _over_http(host, failures, lost, auth) if isinstance(host, HttpHost) else over_stdio(host, failures, lost)


@contextlib.asynccontextmanager
async def _over_http(
    host: HttpHost, failures: Failures, lost: Lost, auth: httpx2.Auth | None
) -> AsyncGenerator[TransportStreams]:
    async def answered(response: httpx2.Response) -> None:
        if response.status_code == 401 and FIRST_TRY in response.request.extensions:
            response.stream = _Instead(response.stream, b"")
            return
        said = _said(response) if response.request.method == "POST" else None
        if said is not None:
            replace_answer(response, said)
        else:
            response.stream = _Checked(response, failures, lost)

    headers = dict(host.headers)
    if host.token is not None:
        headers["Authorization"] = f"Bearer {host.token}"
    async with (
        _Client(
            auth=auth,
            verify=trusted(),
            # Compressed content can be a thousand times as long when it is decompressed.
            headers=headers | {"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(host.timeout, read=READ_TIMEOUT_SECONDS),
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_IDLE),
            event_hooks={"response": [answered]},
        ) as client,
        streamable_http_client(host.url, http_client=client, max_sse_event_size=LONGEST_ANSWER) as (read, write),
    ):
        yield Incoming(read, _without_host_text), write


async def _without_host_text(item: Item) -> Item:
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
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)  # no default port is a number
    upgrade = (here.scheme, there.scheme) == ("http", "https") and here.port is there.port is None
    return response.status_code in (307, 308) and (same or (upgrade and here.host == there.host)) and not there.userinfo


def replace_answer(response: httpx2.Response, error: dict[str, Any]) -> None:
    """Let the library read `error` instead of the host's body."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"message": MADE_HERE, **error}}
    response.stream = _Instead(response.stream, json.dumps(body).encode())
    response.status_code = 400
    response.headers = httpx2.Headers({"content-type": "application/json"})


def bound_body(response: httpx2.Response) -> None:
    """Let the body of an answer raise `StreamError` when it gets too long."""
    response.stream = _Checked(response, Failures(""), lambda _: None)


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
