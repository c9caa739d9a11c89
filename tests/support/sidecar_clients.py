"""Clients of a sidecar over HTTP and over standard streams, whose messages are as a test makes them.

Each can be left in the middle of a call, as a machine that loses its network would.
"""

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from support.sidecar_calls import LEGACY, MODERN, Asked, Calling, Refused, Revision, Served

BOUND = 60.0
"""Seconds until a test gives up waiting for something that must come."""
_CHUNK = 1 << 16
_GONE = (httpx2.NetworkError, httpx2.RemoteProtocolError)  # what ends with the connection


class Broken(Exception):
    """The connection ended before the answer did."""


async def get(url: str, path: str) -> tuple[int, Any]:
    """Give the status and the JSON of another path of the same server."""
    async with httpx2.AsyncClient(timeout=BOUND, verify=False) as http:
        reply = await http.get(urljoin(url, path))
    return reply.status_code, reply.json()


async def exchanged(url: str, sent: bytes) -> bytes:
    """Send bytes on a connection of their own, and give all that comes until the server closes it.

    Raises:
        TimeoutError: It did not close it.
    """
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    came = b""
    with contextlib.suppress(ConnectionError):
        writer.write(sent)
        async with asyncio.timeout(BOUND):
            while part := await reader.read(_CHUNK):
                came += part
    writer.transport.abort()
    return came


def request(method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """A request as bytes, with the length of its body, after which the connection is closed."""
    given = [("Host", "localhost"), *headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    head = "".join(f"{name}: {value}\r\n" for name, value in given)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _messages(reply: httpx2.Response) -> AsyncGenerator[Any]:
    """The messages of a body, as they come: one, or those of its events."""
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        async for event in httpx2.EventSource(reply, max_event_size=None):
            if event.data:
                yield json.loads(event.data)
    elif body := await reply.aread():
        yield json.loads(body)


class HttpClient(Calling):
    """A client over HTTP.

    Args:
        url: The sidecar's address, `/mcp` included.
        token: Its bearer token.
        revision: Of the protocol. The earlier one has a session.
        elicit: Answers questions; without it, the client declares that it cannot.
    """

    def __init__(self, url: str, token: str = "", revision: Revision = MODERN, *, elicit: Asked | None = None) -> None:
        super().__init__(revision, elicit, None)
        self.url, self.token = url, token
        self.session: str | None = None
        # A connection for each exchange, so that one can break off.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._http = httpx2.AsyncClient(timeout=BOUND, verify=False, limits=limits)
        self.socket: Any = None
        """The socket of the newest exchange."""

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End its session, where it has one."""
        if self.session is not None:
            with contextlib.suppress(*_GONE):
                await self._http.delete(self.url, headers=self.headers("", {}))
        await self._http.aclose()

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a message."""
        found = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        if self.revision == MODERN:
            found |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if named := {"name", "taskId"} & params.keys():
                name = str(params[named.pop()])
                found["Mcp-Name"] = name if name.isascii() and name.isprintable() else quote(name)
        elif self.session is not None:
            found |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self.session}
        return found

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        done = False
        try:
            async with self._posted(message, params) as reply, aclosing(_messages(reply)) as messages:
                self.session = reply.headers.get("mcp-session-id", self.session)
                async for came in messages:
                    self.heard.append(came)
                    done = done or came.get("id") == message["id"]
                    yield came
        except _GONE as error:
            raise Broken(type(error).__name__) from None
        if not done:
            raise Broken("no answer")

    async def send(self, message: Mapping[str, Any]) -> None:
        async with self._posted(message, {}):
            pass

    @contextlib.asynccontextmanager
    async def _posted(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> AsyncGenerator[httpx2.Response]:
        headers, body = self.headers(str(message.get("method", "")), params), json.dumps(message)
        async with self._http.stream("POST", self.url, headers=headers, content=body) as reply:
            self.socket = reply.extensions["network_stream"].get_extra_info("socket")
            if reply.status_code >= 400:
                said = await reply.aread()
                self.heard.append(said)
                raise Refused(_number(said) or reply.status_code, said)
            yield reply


def _number(body: bytes) -> int | None:
    """The number of JSON-RPC in a body, where it has one."""
    try:
        return int(json.loads(body)["error"]["code"])
    except (ValueError, TypeError, KeyError):
        return None


class Piped(Calling):
    """A client over one pair of streams, which a subclass has."""

    def __init__(self, revision: Revision, elicit: Asked | None, roles: Served | None) -> None:
        super().__init__(revision, elicit, roles)
        self._waiting: dict[Any, asyncio.Queue[dict[str, Any] | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return await self.begin()

    async def __aexit__(self, *exc: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait([self._reading])

    @abstractmethod
    def come(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages that come, to the end of the stream."""

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        number = message["id"]
        came = self._waiting[number] = asyncio.Queue()
        done = False
        try:
            await self.send(message)
            while not done:
                found = await asyncio.wait_for(came.get(), BOUND)
                if found is None:
                    raise Broken("the sidecar has ended")
                done = "method" not in found
                yield found
        finally:
            del self._waiting[number]
            if not done and method != "initialize":
                with contextlib.suppress(ConnectionError):
                    await self.notify("notifications/cancelled", requestId=number)

    async def _read(self) -> None:
        try:
            async for message in self.come():
                self.heard.append(message)
                await self._take(message)
        finally:
            for waiting in self._waiting.values():
                waiting.put_nowait(None)

    async def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            to = message["params"]["progressToken"]
        elif "method" in message:
            if "id" in message:
                await self.respond(message)
            return
        else:
            to = message["id"]
        if to in self._waiting:
            self._waiting[to].put_nowait(message)


class StdioClient(Piped):
    """A client over the standard streams of a process that it owns; its lines may be long.

    Args:
        process: The sidecar, with pipes for its standard input and output.
        revision: Of the protocol.
        elicit: Answers questions.
        roles: Answers calls of a role host, over this same connection.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        revision: Revision = MODERN,
        *,
        elicit: Asked | None = None,
        roles: Served | None = None,
    ) -> None:
        super().__init__(revision, elicit, roles)
        self.process = process

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.say(json.dumps(message).encode())

    async def say(self, line: bytes) -> None:
        """Send a line, which need not be a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def come(self) -> AsyncGenerator[dict[str, Any]]:
        assert self.process.stdout is not None
        rest = b""
        while part := await self.process.stdout.read(_CHUNK):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield json.loads(line)
