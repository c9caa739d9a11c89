"""A role that comes from a host or goes to one is in no log, error, span or frame (R7)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.agents import answering, scripted_agent
from support.leaks import LONG, SHORT, Watch, spans, watch
from support.processes import children, eventually
from support.raw_hosts import command, raw_host, raw_process
from support.role_host_stub import StubHost, over_http
from support.role_hosts import HostProcess, Kind, Mode, host, opened
from worldagent import Role, Roles, Tier
from worldagent.core.errors import HostUnavailable, WorldAgentError
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.testing import assert_no_role_leak

__all__ = ["spans"]  # fixture

pytestmark = pytest.mark.requirement("R7")


@contextlib.asynccontextmanager
async def apart(kind: Kind, home: Path, *, broken: str = "", **more: Any) -> AsyncGenerator[HttpHost | StdioHost]:
    """A host that is not a thread of this process, which would log what it likes."""
    home.mkdir(exist_ok=True)
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


@pytest.mark.parametrize(("kind", "mode"), [("http", "auto"), ("stdio", "legacy")])
async def test_turns_with_roles_of_a_host_leave_none_anywhere(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    settings = {"role_timeout": 60, "role_cache_ttl": 0}
    home = tmp_path / "home"
    async with apart(kind, tmp_path / "host", mode=mode, timeout=30) as given, watching(home) as seen:
        agent = scripted_agent(home, answering(), roles=Roles(host=given), settings=settings)
        async with agent:
            await agent.roles.put(Tier.WORKSPACE, Role("house", LONG))
            await agent.roles.put(Tier.ACCOUNT, Role("ana", SHORT), scope_id="ana")
            await seen.outcome(agent.thread("t", account="ana").converse("Hi"))
            await seen.outcome(agent.roles.get(Tier.WORKSPACE))
            await seen.outcome(agent.roles.put(Tier.WORKSPACE, Role("house", LONG * 400)))
    assert [type(error).__name__ for error in seen.errors] == ["RoleTooLong"]
    loud = {"mcp", "client", "httpx2", "httpcore2"}  # which say a lot at DEBUG
    assert loud.isdisjoint(record.name.partition(".")[0] for record in seen.logs.records)
    seen.kept = [item for item in seen.kept if not isinstance(item, Role)]
    seen.assert_clean(LONG, SHORT)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("http", "bad json"),
        ("stdio", "dies"),
        ("http", "hangs"),
        ("stdio", "code invalid"),  # it refuses the put
    ],
)
async def test_a_broken_host_leaves_no_role_either(tmp_path: Path, kind: Kind, broken: str) -> None:
    async with apart(kind, tmp_path / "host", timeout=30) as given, opened(given) as store:
        await store.put(Tier.WORKSPACE, "w", Role("x", LONG))
    async with (
        apart(kind, tmp_path / "host", broken=broken, timeout=1) as given,
        watching(tmp_path / "home") as seen,
        opened(given) as store,
    ):
        await seen.outcome(store.list({Tier.WORKSPACE: "w"}))
        await seen.outcome(store.put(Tier.WORKSPACE, "w", Role("x", LONG)))
    assert len(seen.errors) == 2
    seen.assert_clean(LONG, "secret words")


@pytest.mark.parametrize(("kind", "mode"), [("http", "legacy"), ("stdio", "auto")])
async def test_a_host_killed_during_a_put_leaves_no_role(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    before = children()
    async with (
        apart(kind, tmp_path / "host", broken="hangs", mode=mode, timeout=30) as given,
        watching(tmp_path / "home") as seen,
        opened(given) as store,
    ):
        put = asyncio.create_task(seen.outcome(store.put(Tier.WORKSPACE, "w", Role("x", LONG))))
        log = tmp_path / "host" / "host.log"
        assert await eventually(lambda: log.exists() and "hanging" in log.read_text(), 30)
        for process in children() - before:
            process.kill()
        await put
        assert [type(error) for error in seen.errors] == [HostUnavailable]
        seen.assert_clean(LONG)


@pytest.mark.parametrize("how", ["echoes as text", "echoes as json", "echoes as an error", "401 Unauthorized"])
async def test_a_host_that_sends_the_role_back_in_any_form_leaves_none(tmp_path: Path, how: str) -> None:
    with raw_process(how) as url:
        hosts: list[HttpHost | StdioHost] = [HttpHost(url)]
        hosts += [StdioHost(command(how), timeout=1)] if "echoes" in how else []
        for number, given in enumerate(hosts):
            async with watching(tmp_path / f"home {number}") as seen, opened(given) as store:
                await seen.outcome(store.put(Tier.WORKSPACE, "w", Role("x", LONG)))
            assert [error.__context__ for error in seen.errors] == [None]
            seen.assert_clean(LONG)


async def test_spans_of_the_mcp_library_hold_nothing_that_a_host_says(spans: InMemorySpanExporter) -> None:
    async with raw_host("echoes as an error") as raw, opened(HttpHost(raw.url)) as store:
        with pytest.raises(WorldAgentError) as caught:
            await store.put(Tier.WORKSPACE, "w", Role("x", LONG))
    said = [span.to_json() for span in spans.get_finished_spans()]
    assert "MCP send tools/call role_put" in str(said), "nothing was traced, so this shows nothing"
    assert "-32050" in str(said)
    assert_no_role_leak([*said, str(caught.value)], LONG)


async def test_the_token_is_in_no_log(tmp_path: Path) -> None:
    token = "token-that-nobody-should-see-anywhere-in-a-log"
    with over_http(StubHost(), token=token) as url:
        async with watching(tmp_path / "home") as seen, opened(HttpHost(url, token)) as store:
            await store.list({Tier.WORKSPACE: "w"})
    seen.assert_clean(token)


KEY = "key-that-stands-in-an-address-and-nowhere-else"


async def test_connections_of_the_embedding_program_log_as_before(caplog: pytest.LogCaptureFixture) -> None:
    from mcp import Client

    with over_http(StubHost()) as url:
        async with opened(HttpHost(f"{url}?key={KEY}")) as store, Client(f"{url}?key=of-theirs") as own:
            for name in ("mcp.client.streamable_http", "httpx2", "httpcore2.http11"):
                caplog.set_level(logging.DEBUG, name)
            await store.list({Tier.WORKSPACE: "one-of-ours"})
            await own.call_tool("role_list", {"scope_ids": {"workspace": "one-of-theirs"}})
    assert "one-of-theirs" in caplog.text
    assert "key=of-theirs" in caplog.text
    assert {"httpx2", "httpcore2.http11"} <= {record.name for record in caplog.records}
    assert "one-of-ours" not in caplog.text
    assert KEY not in caplog.text
