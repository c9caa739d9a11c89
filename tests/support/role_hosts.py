"""The reference role host as a process, as people start it, and clients for it."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support.agents import scripted_agent
from support.forks import forking
from support.processes import clean_environment, listening
from support.role_host_stub import ALL, StubHost, command, over_http, program
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.mcp_client import HostRoleStore, HttpHost, StdioHost
from worldagent.role_resolution import RoleStore

Kind = Literal["http", "stdio"]
Mode = Literal["auto", "legacy"]


@contextlib.contextmanager
def host(
    kind: Kind, home: Path, *, broken: str = "", tiers: Sequence[str] = ALL, **more: Any
) -> Generator[HttpHost | StdioHost]:
    """A host in a thread, or one that is started as a child; what the latter keeps outlives the child."""
    if kind == "stdio":
        files = ("--file", home / "host.json", "--log", home / "host.log")
        yield StdioHost(command("stdio", *files, "--tiers", ",".join(tiers), "--broken", broken), **more)
        return
    with over_http(StubHost(broken=broken, tiers=tiers, log=home / "host.log")) as url:
        yield HttpHost(url, **more)


def opened(given: HttpHost | StdioHost, **more: Any) -> contextlib.aclosing[HostRoleStore]:
    return contextlib.aclosing(HostRoleStore(given, **more))


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def reachable(port: int) -> None:
    """Wait until something takes connections at a port."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.02)


class HostProcess:
    """A host over HTTP that is a process: it can be killed and started again at the same address."""

    def __init__(self, home: Path, *, broken: str = "", fresh: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        files = ("--file", home / "host.json", "--log", home / "host.log")
        self._argv = (program if fresh else command)(str(self.port), *files, "--broken", broken)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(*self._argv, stdout=asyncio.subprocess.PIPE)
        await reachable(self.port)

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()  # its fork may end a moment later
            self._process = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "role-host")
BOUND = 60  # seconds


@asynccontextmanager
async def stdio_client_of(store: Path, mode: Mode, *options: str) -> AsyncGenerator[Client, None]:
    """Give a client of a host that it has started."""
    first, *words = forking([*COMMAND, "--stdio", "--store", store, *options])
    target = StdioServerParameters(command=first, args=words, env=clean_environment())
    async with Client(target, mode=mode, read_timeout_seconds=BOUND) as client:
        yield client


@asynccontextmanager
async def http_client_of(url: str, mode: Mode, token: str | None = None) -> AsyncGenerator[Client, None]:
    """Give a client of a host at `url`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=BOUND) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=BOUND) as client,
    ):
        yield client


@contextmanager
def http_host(
    store: Path, *options: str, argv: Sequence[str] = COMMAND, errors: Path | None = None, **env: str
) -> Generator[tuple[str, subprocess.Popen[bytes]], None, None]:
    """Run a host on a free port and give its address and its process."""
    words = forking([*argv, "--http", "127.0.0.1:0", "--store", store, *options])
    with listening(words, env=clean_environment(**env), errors=errors) as (url, process):
        assert url.startswith("http://127.0.0.1:"), "the host did not start"
        yield url, process


StoreKind = Literal["embedded", "stdio", "http"]
KINDS: tuple[StoreKind, ...] = ("embedded", "stdio", "http")
on_every_store = pytest.mark.parametrize("kind", KINDS)
"""For a test that takes `kind` and opens its agent inside `stored(kind, ...)`."""

TOKEN = "token-of-the-stored-roles-which-nobody-may-see"
_STORED = (Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL)


@contextlib.contextmanager
def stored(kind: StoreKind, home: Path, *, shipped: bool = False, **more: Any) -> Generator[dict[str, Any]]:
    """What to make an agent with whose roles are stored there.

    Args:
        kind: Which store.
        home: A folder that the host may use; the agent may use it too.
        shipped: The reference host as people start it, not the stub of the tests, which starts faster.
        more: For `Roles`. A host offers the tiers that no source gives.
    """
    if kind == "embedded":
        yield {"roles": Roles(**more)}
        return
    tiers = [tier.value for tier in _STORED if tier not in more.get("sources", ())]
    home.mkdir(parents=True, exist_ok=True)
    given = reference(kind, home) if shipped else host(kind, home, tiers=tiers, timeout=30)
    with given as where:
        yield {"roles": Roles(host=where, **more), "settings": {"role_timeout": 60}}


@contextlib.asynccontextmanager
async def stored_agent(
    kind: StoreKind, home: Path, lm: Any, *, shipped: bool = False, **more: Any
) -> AsyncGenerator[WorldAgent]:
    """A scripted agent at `home` whose roles are stored there; `more` is for the agent."""
    with stored(kind, home, shipped=shipped) as given:
        async with scripted_agent(home, lm, **given, **more) as agent:
            yield agent


# Everything that the libraries of a host log at DEBUG reaches the host's own log, which is what people would look at.
_DEBUGGED = """
import logging, runpy, sys
for name in ("anyio", "asyncio", "httpx2", "mcp", "server", "sse_starlette", "starlette", "uvicorn", "worldagent"):
    logging.getLogger(name).setLevel(logging.DEBUG)
sys.argv[0] = "worldagent"
runpy.run_module("worldagent.hosts.cli", run_name="__main__")
"""


@contextlib.contextmanager
def reference(
    kind: Literal["stdio", "http"], home: Path, *, errors: Path | None = None, **more: Any
) -> Generator[HttpHost | StdioHost]:
    """The role host that is shipped, as people start it: over HTTP with a token.

    Args:
        kind: How it is reached.
        home: Where its store is.
        errors: Where its standard error goes; it then logs at DEBUG.
        more: For `HttpHost` or `StdioHost`.
    """
    limits: dict[str, Any] = {"timeout": 30, "connect_timeout": 60, **more}
    words = COMMAND if errors is None else (sys.executable, "-P", "-c", _DEBUGGED, "role-host")
    if kind == "stdio":
        argv = forking([*words, "--stdio", "--store", home / "host.db"])
        redirect = [] if errors is None else ["sh", "-c", 'exec "$@" 2>>"$0"', str(errors)]
        yield StdioHost([*redirect, *argv], clean_environment(), **limits)
    else:
        store = home / "host.db"
        with http_host(store, argv=words, errors=errors, WORLDAGENT_ROLE_HOST_TOKEN=TOKEN) as (url, _):
            yield HttpHost(url, TOKEN, **limits)


WHERE = {Tier.WORKSPACE: "novel", Tier.ACCOUNT: "ana", Tier.CHANNEL: "c 7/ü"}
"""A scope of each tier."""


async def check_roles(store: HostRoleStore) -> None:
    """Put, get, list, replace and delete roles of every tier in an empty store."""
    assert isinstance(store, RoleStore)
    assert await store.get(Tier.WORKSPACE, "novel") is None
    for tier, scope_id in WHERE.items():
        await store.put(tier, scope_id, Role("first", "old"))
        await store.put(tier, scope_id, Role(tier.value, f"the role of {scope_id}"))
    expected = {tier: Role(tier.value, f"the role of {scope_id}") for tier, scope_id in WHERE.items()}
    assert store.tiers == set(WHERE)
    assert await store.list(WHERE) == expected
    assert await store.get(Tier.CHANNEL, WHERE[Tier.CHANNEL]) == expected[Tier.CHANNEL]
    assert await store.delete(Tier.ACCOUNT, "ana") is True
    assert await store.delete(Tier.ACCOUNT, "ana") is False
    assert set(await store.list(WHERE)) == {Tier.WORKSPACE, Tier.CHANNEL}
    assert await store.list({}) == {}
