"""The reference role host for benchmarks: as a process, as a child, and counting its requests; and a bare client.

`roles.py` measures them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from worldagent.core import Scope
from worldagent.hosts.role_host import Address, RoleHost, Tokens
from worldagent.hosts.role_host.tools import EVERYTHING
from worldagent.hosts.serving import application
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.role_resolution import Role, SqliteRoleStore

TOKEN = "token-of-a-benchmark"
COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli")

# Children of the MCP library inherit few variables; this one says which package they run.
_PATH = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


async def fill(file: Path, scope: Scope, text: str) -> None:
    """Put a role into every stored tier."""
    store = await SqliteRoleStore.open(file)
    for tier in store.tiers:
        await store.put(tier, scope.id_of(tier) or "", Role(tier.value, text))
    await store.aclose()


def child(file: Path, mode: Any) -> StdioHost:
    """The reference host over stdio. Each connection starts a process."""
    return StdioHost([*COMMAND, "role-host", "--stdio", "--store", str(file)], _PATH, mode=mode)


@contextmanager
def process(file: Path) -> Generator[tuple[str, int], None, None]:
    """Start the reference host over HTTP, which requires a token. Yields its address and process id."""
    words = [*COMMAND, "role-host", "--http", "127.0.0.1:0", "--store", str(file)]
    env = os.environ | {"WORLDAGENT_ROLE_HOST_TOKEN": TOKEN}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            url = host.stdout.readline().strip()
            assert url, "the host did not start"
            yield url, host.pid
        finally:
            host.terminate()


@asynccontextmanager
async def bare(host: HttpHost | StdioHost) -> AsyncGenerator[Client, None]:
    """A client of the MCP library, as its documentation shows it. It knows the tools, so a call is one request."""
    async with _client(host) as client:
        await client.list_tools()
        yield client


@asynccontextmanager
async def _client(host: HttpHost | StdioHost) -> AsyncGenerator[Client, None]:
    if isinstance(host, StdioHost):
        command, *args = host.argv
        program = StdioServerParameters(command=command, args=args, env=dict(host.env or {}))
        async with Client(program, mode=host.mode) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {host.token}"}) as http,
        Client(streamable_http_client(host.url, http_client=http), mode=host.mode) as client,
    ):
        yield client


class Counted:
    """A host over HTTP in this process that counts requests.

    Attributes:
        url: Its address.
        asked: How many HTTP requests arrived, by their JSON-RPC method, or by their HTTP method if they have no body.
    """

    def __init__(self, file: Path) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()
        self._file = file

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Counted, None]:
        store = await SqliteRoleStore.open(self._file)
        address = Address("127.0.0.1", 0)
        inner = application(RoleHost(store, tokens=Tokens([(TOKEN, EVERYTHING)])), address)

        async def counting(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["method"] != "POST":
                self.asked[scope.get("method", "")] += scope["type"] == "http"
                await inner(scope, receive, send)
                return
            message = await receive()
            assert not message.get("more_body"), "requests of the contract are small"
            self.asked[json.loads(message["body"])["method"]] += 1
            given = iter([message])

            async def replayed() -> Any:
                return next(given, None) or await receive()

            await inner(scope, replayed, send)

        config = uvicorn.Config(counting, port=0, log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0.01)
        self.url = Address(address.host, server.servers[0].sockets[0].getsockname()[1]).url
        try:
            yield self
        finally:
            server.should_exit = True
            await running
            await store.aclose()


def cpu_of(pid: int) -> float | None:
    """CPU seconds of another process so far; None if the system does not report them."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # how Linux numbers the CPU clocks of processes
    except (AttributeError, OSError):
        return None
