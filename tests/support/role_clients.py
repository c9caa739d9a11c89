"""A client of a sidecar that keeps roles itself, and answers for them on the connection that it made."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter

from worldagent.hosts.sidecar import Sidecar

OFFER: Mapping[str, Any] = {"experimental": {"worldagent/roles": {"contract": 1}}}
BOUND = 30  # seconds

Answer = Callable[[str, Mapping[str, Any]], Any]
"""What a client answers to a call of a tool; an exception is no answer at all."""


class Silence(Exception):
    """No answer."""


@dataclass(slots=True, eq=False)
class RoleClient:
    """A client over the messages themselves, as one in another language is.

    Attributes:
        roles: What it keeps: name and content by tier and scope.
        asked: The tools that it was asked for, with their arguments.
        answer: Answers in the place of what it keeps.
    """

    read: Any
    write: Any
    roles: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    answer: Answer | None = None
    _ids: Any = field(default_factory=lambda: itertools.count(1))
    _open: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)

    async def begin(self, capabilities: Mapping[str, Any]) -> None:
        """Shake hands."""
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": dict(capabilities),
            "clientInfo": {"name": "host", "version": "1"},
        }
        await self.ask("initialize", hello)
        await self._send({"method": "notifications/initialized"})

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool of the sidecar gives."""
        result = await self.ask("tools/call", {"name": tool, "arguments": {"workspace": "novel", **arguments}})
        return dict(result["structuredContent"])

    async def say(self, text: str = "Hello.", **arguments: Any) -> dict[str, Any]:
        """Say something on a thread."""
        return await self.call("converse", **{"thread": "t1", "account": "ana", "text": text, **arguments})

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for what is answered."""
        number = next(self._ids)
        self._open[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": dict(params)})
        async with asyncio.timeout(BOUND):
            return await self._open[number]

    async def listen(self) -> None:
        """Take what the sidecar sends, until it ends."""
        async for item in self.read:
            message = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
            if "method" in message and "id" in message:
                await self._asked(message)
            elif "method" not in message and message.get("id") in self._open:
                self._open.pop(message["id"]).set_result(message.get("result", message))

    async def _asked(self, message: Mapping[str, Any]) -> None:
        tool, arguments = message["params"]["name"], message["params"].get("arguments", {})
        self.asked.append((tool, arguments))
        try:
            result = self._kept(tool, arguments) if self.answer is None else self.answer(tool, arguments)
        except Silence:
            return
        body = {"error": result["error"]} if "error" in result else {"result": {"content": [], **result}}
        await self._send({"id": message["id"], **body})

    def _kept(self, tool: str, given: Mapping[str, Any]) -> Any:
        if tool == "role_list":
            found = [
                (tier, self.roles[tier, id]) for tier, id in given["scope_ids"].items() if (tier, id) in self.roles
            ]
            return _structured({"roles": [_record(tier, *role) for tier, role in found]})
        place = (given["tier"], given["scope_id"])
        if tool == "role_put":
            self.roles[place] = (given["name"], given["content"])
        if place not in self.roles:
            return {"isError": True, **_structured({"code": "not_found"})}
        role = self.roles.pop(place) if tool == "role_delete" else self.roles[place]
        return _structured({"role": _record(place[0], *role)})

    async def _send(self, message: Mapping[str, Any]) -> None:
        parsed: JSONRPCMessage = jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})
        await self.write.send(SessionMessage(parsed))


@asynccontextmanager
async def role_client(
    sidecar: Sidecar, *, capabilities: Mapping[str, Any] = OFFER, **more: Any
) -> AsyncGenerator[RoleClient]:
    """A client that is connected to a sidecar over a connection of its own."""
    async with create_client_server_memory_streams() as (ours, theirs), asyncio.TaskGroup() as tasks:
        server = sidecar.server
        serving = tasks.create_task(server.run(*theirs, server.create_initialization_options()))
        client = RoleClient(*ours, **more)
        listening = tasks.create_task(client.listen())
        try:
            await client.begin(capabilities)
            yield client
        finally:
            listening.cancel()
            await ours[1].aclose()
            serving.cancel()


def _structured(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"structuredContent": {"contract": 1, **content}}


def _record(tier: str, name: str, content: str) -> dict[str, str]:
    return {"tier": tier, "name": name, "content": content}


__all__ = ["OFFER", "RoleClient", "Silence", "role_client"]
