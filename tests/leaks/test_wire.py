"""What crosses the wire to a role host: stored roles, and never a role of a call or a thread (R9)."""

import contextlib
import itertools
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from support.agents import CRITIC, answering, scripted_agent
from support.leaks import awkward_canary, canary
from support.role_hosts import Mode, reference
from support.serving import recorded, recorded_over_http
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Composed, Trigger
from worldagent.core import Scope
from worldagent.core.errors import UnknownTier
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.testing import scan_for_roles

Kind = Literal["stdio", "http"]
LENGTHS = (12, 400, 18_000)  # the longest awkward one is near the limit of a role in bytes
# By how the text looks: words, or what JSON escapes.
TEXTS = {"words": canary, "awkward": awkward_canary}
SAMPLE = [("stdio", "auto", 400, "words"), ("http", "legacy", 400, "awkward"), ("http", "auto", 12, "words")]
EVERY = list(itertools.product(("stdio", "http"), ("auto", "legacy"), LENGTHS, TEXTS))
REST = [case for case in EVERY if case not in SAMPLE]


@contextlib.asynccontextmanager
async def on_the_wire(kind: Kind, mode: Mode, folder: Path) -> AsyncGenerator[HttpHost | StdioHost]:
    """The reference host behind what writes down every byte, in `folder`."""
    folder.mkdir()
    with reference(kind, folder, mode=mode) as given:
        if isinstance(given, StdioHost):
            argv = recorded(folder / "wire", given.argv)
            yield StdioHost(argv, given.env, mode=mode, timeout=30, connect_timeout=60)
        else:
            async with recorded_over_http(folder / "wire", given.url) as url:
                yield HttpHost(url, given.token, mode=mode, timeout=30, connect_timeout=60)


async def use_every_surface(agent: WorldAgent, role: Role) -> None:
    """Run turns with `role` as the call's through all surfaces, and try what must not store it."""
    thread = agent.thread("t", account="ana", channel="den")
    task = {"worker": "critic", "request": "Judge."}
    await thread.converse("Hi", role=role)
    async with thread.stream("Hi", role=role) as stream:
        async for _ in stream:
            pass
    await thread.task("subagent", task, role=role)
    await thread.run_skill(Composed("Count syllables.", params=task), role=role)
    fired = datetime(2026, 11, 21, 8, tzinfo=UTC)
    await thread.run_scheduled(Trigger(schedule="daily", fired_at=fired, payload={}), role=role)
    await agent.explain_role(thread, role=role)
    for tier in (Tier.CALL, Tier.THREAD):
        with pytest.raises(UnknownTier):
            await agent.roles.put(tier, role, scope_id="t")


async def check(folder: Path, kind: Kind, mode: Mode, length: int, text: str) -> None:
    content = {tier: TEXTS[text](length, seed=number) for number, tier in enumerate(Tier)}

    async def thread_source(scope: Scope) -> Role | None:
        return Role(canary(30, "thread"), content[Tier.THREAD])

    async with on_the_wire(kind, mode, folder / "host") as given:
        roles = Roles(host=given, sources={Tier.THREAD: thread_source})
        settings = {"role_timeout": 60, "role_cache_ttl": 0}
        lm = answering()
        async with scripted_agent(folder / "home", lm, roles=roles, settings=settings, workers=[CRITIC]) as agent:
            for tier, scope_id in ((Tier.WORKSPACE, None), (Tier.ACCOUNT, "ana"), (Tier.CHANNEL, "den")):
                await agent.roles.put(tier, Role(canary(30, tier), content[tier]), scope_id=scope_id)
            await use_every_surface(agent, Role(canary(30, "call"), content[Tier.CALL]))
    assert all(any(content[tier] in (call.role or "") for call in lm.calls) for tier in Tier)
    wire = {way: folder / "host" / f"wire.{way}" for way in ("to", "from")}
    for way in wire.values():
        for tier in (Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL):
            assert scan_for_roles(way, content[tier]).findings, (
                f"{tier} was not seen on the wire: the scan shows nothing"
            )
        private = [content[Tier.CALL], content[Tier.THREAD], canary(30, "call"), canary(30, "thread")]
        assert scan_for_roles(way, private).findings == ()


@pytest.mark.requirement("R7", "R9")
@pytest.mark.parametrize(("kind", "mode", "length", "text"), SAMPLE)
async def test_roles_of_calls_and_threads_do_not_reach_the_wire(
    tmp_path: Path, kind: Kind, mode: Mode, length: int, text: str
) -> None:
    await check(tmp_path, kind, mode, length, text)


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "mode", "length", "text"), REST)
async def test_no_role_of_a_call_or_a_thread_reaches_the_wire(
    tmp_path: Path, kind: Kind, mode: Mode, length: int, text: str
) -> None:
    await check(tmp_path, kind, mode, length, text)
