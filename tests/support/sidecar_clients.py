"""Clients of a sidecar on the bare wire, over HTTP and over standard streams.

Each can be left in the middle of a call, as a machine that loses its network would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Self

from support.sidecar_calls import LEGACY, MODERN, Asked, Calling, Refused, Revision, Served
from support.sidecar_wire import BOUND, Broken, Wire

_CHUNK = 1 << 16
_STALE = 2.0  # seconds after which a server may close a connection that waits


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
        self._wires: list[tuple[float, Wire]] = []
        self.wire: Wire | None = None
        """The connection of the newest exchange."""

    async def __aenter__(self) -> Self:
        if self.revision == LEGACY:
            await self.request("initialize", **self.hello)
            await self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End its session, where it has one, and its connections."""
        if self.session is not None:
            with contextlib.suppress(Broken, OSError):
                wire = await self._wire()
                await (await wire.ask("DELETE", "/mcp", self.headers("", {}))).read()
                wire.close()
        for _, wire in self._wires:
            wire.close()

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a message."""
        found = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        if self.revision == MODERN:
            found |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if "name" in params:
                found["Mcp-Name"] = str(params["name"])
        elif self.session is not None:
            found |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self.session}
        return found

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        wire = self.wire = await self._wire()
        done = False
        try:
            reply = await wire.ask("POST", "/mcp", self.headers(method, params), json.dumps(message).encode())
            self.session = reply.headers.get("mcp-session-id", self.session)
            if reply.status >= 400:
                said = await reply.read()
                self.heard.append(said)
                raise Refused(_number(said) or reply.status, said)
            async with aclosing(reply.messages()) as messages:
                async for came in messages:
                    self.heard.append(came)
                    done = done or came.get("id") == message["id"]
                    yield came
            if not done:
                raise Broken("no answer")
        finally:
            if done and wire.idle:
                self._wires.append((time.monotonic(), wire))
            else:
                wire.close()

    async def respond(self, message: dict[str, Any]) -> None:
        await self._post({"jsonrpc": "2.0", "id": message["id"], **self.answer_of(message)})

    async def notify(self, method: str, **params: Any) -> None:
        await self._post({"jsonrpc": "2.0", "method": method, "params": params})

    async def _post(self, message: Mapping[str, Any]) -> None:
        wire = await self._wire()
        headers = self.headers(str(message.get("method", "")), {})
        reply = await wire.ask("POST", "/mcp", headers, json.dumps(message).encode())
        said = await reply.read()
        wire.close()
        if reply.status >= 400:
            raise Refused(reply.status, said)

    async def _wire(self) -> Wire:
        while self._wires:
            since, wire = self._wires.pop()
            if time.monotonic() - since < _STALE and not wire.reader.at_eof():
                return wire
            wire.close()
        return await Wire.open(self.url)


def _number(body: bytes) -> int | None:
    """The number of JSON-RPC in a body, where it has one."""
    try:
        said = json.loads(body)
        number = said["error"]["code"]
    except (ValueError, TypeError, KeyError):
        return None
    return number if isinstance(number, int) else None


class StdioClient(Calling):
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
        self._waiting: dict[Any, asyncio.Queue[dict[str, Any] | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        if self.revision == LEGACY:
            await self.request("initialize", **self.hello)
            await self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        number = message["id"]
        came = self._waiting[number] = asyncio.Queue()
        done = False
        try:
            await self.say(message)
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

    async def respond(self, message: dict[str, Any]) -> None:
        await self.say({"jsonrpc": "2.0", "id": message["id"], **self.answer_of(message)})

    async def notify(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def say(self, message: Mapping[str, Any] | bytes) -> None:
        """Send a message, or a line that is none."""
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            rest = b""
            while part := await self.process.stdout.read(_CHUNK):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    message = json.loads(line)
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


__all__ = ["HttpClient", "StdioClient"]
