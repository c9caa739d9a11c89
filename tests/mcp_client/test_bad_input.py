"""Hosts that answer anything at all: a turn fails with what is wrong and the remedy, soon, and nothing stays behind."""

import asyncio
import socket
import ssl
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.broken_hosts import broken_host
from support.processes import children, eventually, held, others
from support.raw_hosts import HUGE, RawHost, command, raw_host
from support.tools import certificate
from worldagent import Roles, Tier, WorldAgent
from worldagent.core.errors import (
    HostError,
    HostForbidden,
    HostUnavailable,
    RoleSourceInvalid,
    RoleSourceUnavailable,
    RoleTooLong,
    WorldAgentError,
)
from worldagent.hosts.role_host import Grant, Tokens
from worldagent.mcp_client import HttpHost, StdioHost

pytestmark = pytest.mark.requirement("R14")

BOUND = 15.0
TOKEN = "token-that-only-one-host-may-see"
INVALID, DOWN = RoleSourceInvalid, RoleSourceUnavailable


def check(error: WorldAgentError) -> None:
    """What every error of ours has; and nothing of the host, of the token or of another exception."""
    assert str(error).endswith(error.remedy)
    assert error.code != "error"
    seen = f"{error!r} {error.args} {error.__cause__!r} {error.__context__!r}"
    assert "secret" not in seen
    assert TOKEN not in seen
    assert error.__cause__ is None
    assert error.__context__ is None


async def fails(agent: WorldAgent, kind: type[WorldAgentError], says: str) -> None:
    """Ask for a turn and for the roles: both fail in time, the turn before any model call."""
    thread = agent.thread("t")
    async with asyncio.timeout(BOUND):
        with pytest.raises(kind, match=f"the workspace role could not be read: .*{says}") as turn:
            await thread.converse("Hi")
        with pytest.raises(HostError, match=says) as asked:
            await agent.roles.get(Tier.WORKSPACE)
    assert type(turn.value) is kind
    check(turn.value)
    check(asked.value)
    assert await thread.history() == ()


@asynccontextmanager
async def agent_of(home: Path, given: HttpHost | StdioHost) -> AsyncGenerator[tuple[WorldAgent, Any]]:
    """An agent of that host; when it is closed nothing runs and nothing is open that was not before."""
    lm = answering()
    tasks, before, running = others(), held(), children()
    async with scripted_agent(home, lm, roles=Roles(host=given), settings={"role_timeout": 60}) as agent:
        yield agent, lm
    assert await eventually(lambda: others() <= tasks)
    assert children() <= running
    # Two more may be the last connections that a host in this process has not closed yet.
    assert await eventually(lambda: held()[0] <= before[0] + 2), (held(), before)


STDIO, STREAM, JSON = "", "text/event-stream", "application/json"
BROKEN: list[tuple[str, str, type[WorldAgentError], str]] = [
    ("huge", STDIO, INVALID, "answered with more than 8 MiB"),
    ("deep", STDIO, INVALID, "answered with too many values in one message"),
    ("nothing", STDIO, DOWN, "did not answer within 1 s"),
    ("closes its output", STDIO, DOWN, "ended in the middle of a call"),
    ("a result that is none", STDIO, INVALID, "not an MCP message of its kind"),
    (
        "a number for a name",
        STDIO,
        INVALID,
        "answered role_.* that is not (one of the requested roles|a workspace role)",
    ),
    ("an unknown revision", STDIO, INVALID, "speaks no protocol revision of MCP that this package knows"),
    ("huge", STREAM, INVALID, "answered with more than 8 MiB"),
    ("deep", JSON, INVALID, "answered with too many values in one message"),
    ("no json", STREAM, INVALID, "not an MCP message"),
    ("nothing", STREAM, DOWN, "ended in the middle of a call"),
    ("drips", JSON, DOWN, "did not answer within 1 s"),
    ("an error of its own", JSON, DOWN, r"failed \(MCP error -32050\)"),
    ("401 Unauthorized", JSON, HostForbidden, "refused access; pass a token"),
    ("404 Not Found", JSON, INVALID, "the address is perhaps not its MCP endpoint"),
    ("429 Too Many Requests", JSON, DOWN, r"takes no calls at present \(HTTP 429\); try again later"),
    ("502 Bad Gateway", JSON, DOWN, r"failed \(HTTP 502\)"),
    ("503 Busy", "Retry-After: 30", DOWN, "try again in 30 s$"),
    ("503 Busy", f"Retry-After: {'9' * 4000}", DOWN, "try again later$"),
]
"""How a host answers, over what or with which header, and what its turn fails with."""


@pytest.mark.parametrize(("how", "over", "kind", "says"), BROKEN)
async def test_broken_host_is_named(
    tmp_path: Path, how: str, over: str, kind: type[WorldAgentError], says: str
) -> None:
    async with AsyncExitStack() as stack:
        given: HttpHost | StdioHost = StdioHost(command(how), timeout=1)
        raw: RawHost | None = None
        if over != STDIO:
            headers = [over] if ":" in over else []
            raw = await stack.enter_async_context(raw_host(how, *headers, kind=JSON if headers else over))
            given = HttpHost(raw.url, TOKEN, timeout=1)
        agent, lm = await stack.enter_async_context(agent_of(tmp_path, given))
        await fails(agent, kind, says)
        assert raw is None or TOKEN.encode() in raw.came
    assert lm.calls == []


@pytest.mark.parametrize("over", ["stdio", "gzip"])
async def test_an_answer_of_100_mb_is_not_kept_in_memory(tmp_path: Path, over: str) -> None:
    async with AsyncExitStack() as stack:
        raw: RawHost | None = None
        if over == "stdio":
            given: HttpHost | StdioHost = StdioHost(command("huge"), timeout=10)
        else:
            raw = await stack.enter_async_context(raw_host("huge", "Content-Encoding: gzip", kind="application/json"))
            given = HttpHost(raw.url, timeout=10)
        agent, _ = await stack.enter_async_context(agent_of(tmp_path, given))
        tracemalloc.start()
        with pytest.raises(RoleSourceInvalid, match=r"more than 8 MiB|not an MCP message"):
            await agent.thread("t").converse("Hi")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40 << 20, peak
        assert raw is None or raw.sent < HUGE / 2


async def test_a_program_that_writes_a_banner_first_works(tmp_path: Path) -> None:
    async with agent_of(tmp_path, StdioHost(command("a banner"))) as (agent, _):
        assert (await agent.thread("t").converse("Hi")).text == "Fine."


@pytest.mark.requirement("R15")
async def test_a_role_of_a_host_over_the_limit_is_refused_with_its_tier(tmp_path: Path) -> None:
    async with agent_of(tmp_path, StdioHost(command("a role over the limit"))) as (agent, lm):
        with pytest.raises(RoleTooLong, match="workspace role has 33000 bytes, and the limit is 32768") as caught:
            await agent.thread("t").converse("Hi")
        check(caught.value)
        assert lm.calls == []


async def test_a_redirect_to_another_host_is_not_followed_and_no_token_goes_there(tmp_path: Path) -> None:
    async with raw_host() as other, raw_host("307 Moved", f"Location: {other.url}") as raw:
        async with agent_of(tmp_path, HttpHost(raw.url, TOKEN)) as (agent, _):
            await fails(
                agent,
                INVALID,
                "another address, and the token is not sent there; configure the address that it redirects to$",
            )
        assert TOKEN.encode() in raw.came
        assert other.came == b""


async def test_an_untrusted_certificate_is_refused_before_the_token_is_sent(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "unknown"))
    async with raw_host(tls=context) as raw:
        async with agent_of(tmp_path / "home", HttpHost(raw.url, TOKEN)) as (agent, _):
            await fails(agent, DOWN, "its TLS certificate is not trusted.*install a certificate")
        assert raw.came == b""


async def test_an_address_without_an_answer_is_named_with_the_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        refused = f"http://127.0.0.1:{free.getsockname()[1]}/mcp?key=secret"
    for url, says in (
        (refused, "could not be reached .nothing listens there.; start it"),
        ("http://no-such-host.invalid/mcp", "its name is not known"),
    ):
        async with agent_of(tmp_path, HttpHost(url, TOKEN, timeout=5)) as (agent, lm):
            await fails(agent, DOWN, says)
        assert lm.calls == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        async with agent_of(tmp_path, HttpHost(url, TOKEN, connect_timeout=0.5)) as (agent, lm):
            await fails(agent, DOWN, r"did not answer within 0\.5 s; find out why it is slow")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("no-such-program", "there is no such program or folder"),
        ("folder", "it is not an executable program"),
        ("ends", "it ended at once"),
    ],
)
async def test_program_that_cannot_start_is_named_with_the_problem(tmp_path: Path, program: str, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "ends").write_text("#!/bin/sh\necho secret >&2\nexit 3\n")
    (tmp_path / "ends").chmod(0o755)
    word = program if program == "no-such-program" else str(tmp_path / program)
    async with agent_of(tmp_path / "home", StdioHost([word, "--key=secret"])) as (agent, _):
        await fails(agent, DOWN, f"role host '{Path(word).name}' could not be reached .{says}.; start it")


@pytest.mark.requirement("R9")
async def test_a_refusal_fails_the_turn_even_where_outages_are_skipped(tmp_path: Path) -> None:
    grant = Grant({Tier.WORKSPACE: frozenset({"*"}), Tier.ACCOUNT: frozenset({"ana"})})
    with ExitStack() as serving:
        url, _ = serving.enter_context(broken_host(tokens=Tokens([(TOKEN, grant)]), grant=grant))
        lm = answering()
        roles = Roles(host=HttpHost(url, TOKEN), on_unavailable="skip")
        settings = {"role_timeout": 60, "role_cache_ttl": 0}
        async with scripted_agent(tmp_path, lm, roles=roles, settings=settings) as agent:
            own, foreign = agent.thread("t", account="ana"), agent.thread("u", account="ben")
            await own.converse("Hi")
            with pytest.raises(HostForbidden, match=r"the workspace and account role .*; pass a token") as caught:
                await foreign.converse("Hi")
            assert not caught.value.retryable
            check(caught.value)
            assert await foreign.history() == ()
            states = {tier.tier: tier.state for tier in (await agent.explain_role(foreign)).tiers}
            assert states[Tier.ACCOUNT] == "unavailable"
            serving.close()
            skipped = await own.converse("Hi")
    assert set(skipped.skipped_tiers) == {Tier.WORKSPACE, Tier.ACCOUNT}
    assert len(lm.calls) == 2


async def test_a_call_after_a_bad_answer_is_made_again(tmp_path: Path) -> None:
    async with raw_host("huge") as raw, agent_of(tmp_path, HttpHost(raw.url)) as (agent, _):
        with pytest.raises(HostError):
            await agent.thread("t").converse("Hi")
        for how in ("no json", "503 Busy", "401 Unauthorized", "an error of its own"):
            raw.how = how
            with pytest.raises((RoleSourceInvalid, HostUnavailable, HostForbidden)):
                await agent.roles.list()
        raw.how = "sound"
        assert (await agent.thread("t").converse("Hi")).text == "Fine."
