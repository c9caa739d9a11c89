"""A sidecar of the test's own process, served over real HTTP, and clients of both revisions for it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.published import check_answer
from support.role_hosts import BOUND, Mode, http_client_of
from worldagent import Settings, Storage, WorldAgent
from worldagent.core.events import Event, parse_event
from worldagent.hosts.serving import Address, HttpOptions, Tokens, serve_http
from worldagent.hosts.sidecar import Grant, Sidecar

TOKEN = "a-token-that-reaches-everything"

_OPTIONS = HttpOptions(drain=0.2)


def codes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """How calls were answered, as the request log has it."""
    fields = [vars(line).get("worldagent_fields", {}) for line in caplog.records]
    return [line["code"] for line in fields if "code" in line]


@asynccontextmanager
async def served(sidecar: Sidecar, *, options: HttpOptions = _OPTIONS) -> AsyncGenerator[str]:
    """Serve on a free port, and give the address. It ends as people end it, by a signal."""
    found: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    async with sidecar:
        serving = asyncio.create_task(serve_http(sidecar, Address("127.0.0.1", 0), options, ready=found.set_result))
        try:
            waited: set[asyncio.Future[Any]] = {serving, found}
            await asyncio.wait(waited, timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield found.result().url
        finally:
            if not serving.done():
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(serving, BOUND)


class Caller:
    """A client that takes answers apart.

    Attributes:
        client: The client itself.
        events: What came as progress, over all calls.
        progress: The numbers that it came with.
        heartbeats: What came between events, each with its number.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.events: list[Event] = []
        self.progress: list[float] = []
        self.heartbeats: list[tuple[float, dict[str, Any]]] = []
        self.come = asyncio.Event()

    async def __call__(self, tool: str, *, follow: bool = True, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers, and give the answer."""
        result = await self.raw(tool, follow=follow, **arguments)
        assert not result.is_error, result.structured_content
        content: dict[str, Any] = result.structured_content
        assert content["contract"] == 1
        return content

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers with an error, and give that."""
        result = await self.raw(tool, **arguments)
        assert result.is_error, result.structured_content
        error: dict[str, Any] = result.structured_content["error"]
        sentence, _, told = result.content[0].text.partition("\n")
        assert sentence == f"{error['code']}: {error['problem']}; {error['remedy']}"
        assert json.loads(told) == result.structured_content
        return error

    async def raw(self, tool: str, *, follow: bool = True, **arguments: Any) -> Any:
        """Call a tool."""
        called = self.client.call_tool(tool, arguments, progress_callback=self._come if follow else None)
        result = await asyncio.wait_for(called, BOUND)
        check_answer(tool, result.structured_content, failed=bool(result.is_error))
        return result

    async def _come(self, progress: float, total: float | None, message: str | None) -> None:
        event = parse_event(message or "")
        if event is None:
            assert json.loads(message or "")["type"] == "heartbeat"
            self.heartbeats.append((progress, json.loads(message or "")))
            return
        self.events.append(event)
        self.progress.append(progress)
        self.come.set()

    @property
    def text(self) -> str:
        """What the deltas come to."""
        told = ""
        for event in self.events:
            if event.type == "text_delta":
                told += event.text
            elif event.type == "text_replaced":
                told = event.text
        return told


@asynccontextmanager
async def caller_of(url: str, mode: Mode, token: str | None = None) -> AsyncGenerator[Caller]:
    """A client of one revision."""
    async with http_client_of(url, mode, token) as client:
        yield Caller(client)


def agents(home: Path, **given: Any) -> Callable[[str], WorldAgent]:
    """What makes agents that share a home."""
    settings = given.pop("settings", None) or Settings(model_attempts=1, model_backoff=0)
    return lambda workspace: WorldAgent(workspace, storage=Storage(home=home), settings=settings, **given)


def tokens(**grants: Grant) -> Tokens[Grant]:
    """Tokens by name; `_` stands for `-`."""
    return Tokens([(name.replace("_", "-"), grant) for name, grant in grants.items()])


def as_json(event: Event) -> dict[str, Any]:
    """An event as it goes over the wire."""
    told: dict[str, Any] = json.loads(event.model_dump_json())
    return told


__all__ = ["TOKEN", "Caller", "agents", "as_json", "caller_of", "served", "tokens"]
