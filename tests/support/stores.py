"""Where stored roles can be kept (R9): the embedded store, and the same over MCP. Their tests run on all."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, Literal

import pytest

from support.agents import scripted_agent
from support.mcp_hosts import host
from support.role_hosts import COMMAND, environment, http_host
from worldagent import Roles, Tier, WorldAgent
from worldagent.mcp_client import HttpHost, StdioHost

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
    program = COMMAND if errors is None else (sys.executable, "-P", "-c", _DEBUGGED, "role-host")
    if kind == "stdio":
        argv = [*program, "--stdio", "--store", str(home / "host.db")]
        redirect = [] if errors is None else ["sh", "-c", 'exec "$@" 2>>"$0"', str(errors)]
        yield StdioHost([*redirect, *argv], environment(), **limits)
    else:
        store = home / "host.db"
        with http_host(store, program=program, errors=errors, WORLDAGENT_ROLE_HOST_TOKEN=TOKEN) as (url, _):
            yield HttpHost(url, TOKEN, **limits)
