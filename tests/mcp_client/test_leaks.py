"""A role that comes from a host or goes to one stands in no log, error or frame (R7)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.canaries import LONG, SHORT
from support.leaks import Watch, watch
from support.mcp_hosts import HostProcess, Kind, Mode, host, opened
from support.role_host_stub import StubHost, over_http
from worldagent import Role, Roles, Tier
from worldagent.mcp_client import HttpHost, StdioHost


@contextlib.asynccontextmanager
async def apart(kind: Kind, home: Path, *, broken: str = "", **more: Any) -> AsyncGenerator[HttpHost | StdioHost]:
    """A host that is no thread of this process, which would log what it likes."""
    if kind == "http":
        async with HostProcess(home, broken=broken) as process:
            yield HttpHost(process.url, **more)
    else:
        with host(kind, home, broken=broken, **more) as given:
            yield given


@contextlib.asynccontextmanager
async def watching(home: Path) -> AsyncGenerator[Watch]:
    with watch(home) as seen:
        (home / "nothing").touch()  # a scan of an empty folder is refused
        yield seen


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("kind", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_turns_with_roles_of_a_host_leave_none_anywhere(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    elsewhere = tmp_path / "host"
    elsewhere.mkdir()
    settings = {"role_timeout": 60, "role_cache_ttl": 0}
    home = tmp_path / "home"
    async with apart(kind, elsewhere, mode=mode, timeout=30) as given, watching(home) as seen:
        agent = scripted_agent(home, answering(), roles=Roles(host=given), settings=settings)
        async with agent:
            await agent.roles.put(Tier.WORKSPACE, Role("house", LONG))
            await agent.roles.put(Tier.ACCOUNT, Role("ana", SHORT), scope_id="ana")
            await seen.outcome(agent.thread("t", account="ana").converse("Hi"))
            await seen.outcome(agent.roles.get(Tier.WORKSPACE))
            await seen.outcome(agent.roles.put(Tier.WORKSPACE, Role("house", LONG * 400)))
    assert [type(error).__name__ for error in seen.errors] == ["RoleTooLong"]
    assert kind == "stdio" or "mcp.client.streamable_http" in {record.name for record in seen.logs.records}
    seen.kept = [item for item in seen.kept if not isinstance(item, Role)]
    seen.assert_clean(LONG, SHORT)


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(
    ("kind", "broken"),
    [("http", "bad json"), ("stdio", "garbage"), ("http", "crashes"), ("stdio", "dies"), ("http", "hangs")],
)
async def test_a_broken_host_leaves_no_role_either(tmp_path: Path, kind: Kind, broken: str) -> None:
    elsewhere = tmp_path / "host"
    elsewhere.mkdir()
    async with apart(kind, elsewhere, timeout=30) as given, opened(given) as store:
        await store.put(Tier.WORKSPACE, "w", Role("x", LONG))
    async with (
        apart(kind, elsewhere, broken=broken, timeout=1) as given,
        watching(tmp_path / "home") as seen,
        opened(given) as store,
    ):
        await seen.outcome(store.list({Tier.WORKSPACE: "w"}))
        await seen.outcome(store.put(Tier.WORKSPACE, "w", Role("x", LONG)))
    assert len(seen.errors) == 2
    seen.assert_clean(LONG, "secret words")


@pytest.mark.requirement("R7")
async def test_the_token_is_in_no_log(tmp_path: Path) -> None:
    token = "token-that-nobody-should-see-anywhere-in-a-log"
    with over_http(StubHost(), token=token) as url:
        async with watching(tmp_path / "home") as seen, opened(HttpHost(url, token)) as store:
            await store.list({Tier.WORKSPACE: "w"})
    seen.assert_clean(token)


async def test_connections_of_the_embedding_program_log_as_before(caplog: pytest.LogCaptureFixture) -> None:
    from mcp import Client

    with over_http(StubHost()) as url:
        async with opened(HttpHost(url)) as store, Client(url) as own:
            with caplog.at_level(logging.DEBUG, "mcp.client.streamable_http"):
                await store.list({Tier.WORKSPACE: "one-of-ours"})
                await own.call_tool("role_list", {"scope_ids": {"workspace": "one-of-theirs"}})
    assert "one-of-theirs" in caplog.text
    assert "one-of-ours" not in caplog.text
