"""HTTP/1.1 and its events on plain sockets, so that a test can break off anywhere. What is said stands elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

BOUND = 60.0
"""Seconds until a test gives up waiting for something that must come."""
_LONGEST = 1 << 24  # bytes in a line


class Broken(Exception):
    """The connection ended before the answer did."""


@dataclass
class Reply:
    """The answer to a request, whose body is still to be read.

    Attributes:
        status: The number of HTTP.
        headers: By their names in small letters.
    """

    status: int
    headers: Mapping[str, str]
    wire: Wire

    @property
    def streams(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.wire.parts(self)])

    async def json(self) -> Any:
        """The whole body, which is JSON."""
        return json.loads(await self.read())

    async def messages(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages of the body, as they come: one, or those of its events."""
        if not self.streams:
            body = await self.read()
            if body:
                yield json.loads(body)
            return
        rest = b""
        async with aclosing(self.wire.parts(self)) as parts:
            async for part in parts:
                *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
                for event in events:
                    data = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
                    if any(data):
                        yield json.loads(b"\n".join(data))


class Wire:
    """A connection, which is used for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.idle = True  # whether the next request may be sent

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connect to the machine and port of an address."""
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port, limit=_LONGEST))

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        host: str = "localhost",
    ) -> None:
        """Send a request."""
        fields = {"Host": host, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.idle = False
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """Read the head of the answer.

        Raises:
            Broken: The connection ended.
        """
        head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return Reply(int(head[0].split()[1]), headers, self)

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Send a request and read the head of the answer."""
        await self.send(method, path, headers, body)
        return await self.reply()

    async def parts(self, reply: Reply) -> AsyncGenerator[bytes]:
        """The body, as it comes."""
        if reply.headers.get("transfer-encoding") == "chunked":
            while size := int(await self._until(b"\r\n"), 16):
                yield await self._exactly(size)
                await self._exactly(2)
            await self._exactly(2)
        elif size := int(reply.headers.get("content-length", "0")):
            yield await self._exactly(size)
        self.idle = reply.headers.get("connection") != "close"

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Break off, whatever is still to come."""
        self.writer.transport.abort()

    async def _until(self, end: bytes) -> bytes:
        try:
            return (await asyncio.wait_for(self.reader.readuntil(end), BOUND))[: -len(end)]
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken(type(error).__name__) from None

    async def _exactly(self, size: int) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.readexactly(size), BOUND)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken(type(error).__name__) from None


async def get(url: str, path: str) -> tuple[int, Any]:
    """What stands at another path of the same server: the status, and the body where it is JSON."""
    wire = await Wire.open(url)
    try:
        reply = await wire.ask("GET", path)
        body = await reply.read()
    finally:
        wire.close()
    return reply.status, json.loads(body) if body[:1] in (b"{", b"[") else body


__all__ = ["BOUND", "Broken", "Reply", "Wire", "get"]
