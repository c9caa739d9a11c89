"""An agent whose roles live in a host: what a turn costs, what an outage does to it, when a change is seen."""

import asyncio
import functools
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.processes import eventually
from support.role_host_stub import StubHost, over_http
from support.role_hosts import Mode, free_port, opened
from worldagent import Role, Roles, Tier
from worldagent.core import Scope
from worldagent.core.errors import RoleSourceUnavailable
from worldagent.mcp_client import HttpHost
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("R9")


async def channel_source(scope: Scope) -> Role | None:
    return Role("channel", f"channel of {scope.channel}")


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_turn_costs_one_round_trip_and_none_while_roles_are_cached(tmp_path: Path, mode: Mode) -> None:
    stub = StubHost()
    with over_http(stub) as url:
        roles = Roles(host=HttpHost(url, mode=mode))
        async with scripted_agent(tmp_path, answering(), roles=roles, clock=VirtualClock()) as agent:
            thread = agent.thread("t", account="ana", channel="c")
            await thread.converse("Hi")
            # It is asked for notices, once, in the background.
            notices = ("POST", "subscriptions/listen") if mode == "auto" else ("GET", "")
            assert await eventually(lambda: notices in stub.requests)
            before = len(stub.requests)
            for _ in range(3):
                await thread.converse("Hi")
            assert stub.requests[before:] == []
            assert [name for name, _ in stub.calls] == ["role_list"]
        seen = len(stub.requests)
        async with scripted_agent(tmp_path, answering(), roles=roles, settings={"role_cache_ttl": 0}) as agent:
            thread = agent.thread("t", account="ana")
            await thread.converse("Hi")
            assert await eventually(lambda: notices in stub.requests[seen:])
            before = len(stub.requests)
            for _ in range(3):
                await thread.converse("Hi")
            assert stub.requests[before:] == [("POST", "tools/call" if mode == "auto" else "")] * 3
    assert [name for name, _ in stub.calls] == ["role_list"] * 5


async def test_a_change_that_the_host_reports_is_seen_by_the_next_turn(tmp_path: Path) -> None:
    stub, lm = StubHost(), answering()
    with over_http(stub) as url:
        roles = Roles(host=HttpHost(url))
        async with scripted_agent(tmp_path, lm, roles=roles, clock=VirtualClock()) as agent:
            thread = agent.thread("t")
            await thread.converse("1")
            assert await eventually(lambda: bool(stub.bus._listeners))
            await asyncio.to_thread(stub.change, "workspace", "novel", "new words")
            async with asyncio.timeout(10):
                while lm.calls[-1].role is None:  # the notice is on its way
                    await thread.converse("2")
    assert lm.calls[-1].role == "new words"


@pytest.mark.requirement("R14")
async def test_a_host_that_is_down_fails_turns_with_the_remedy_until_it_is_there(tmp_path: Path) -> None:
    lm, port = answering(), free_port()
    roles = Roles(host=HttpHost(f"http://127.0.0.1:{port}/mcp"))
    async with scripted_agent(tmp_path, lm, roles=roles) as agent:
        thread = agent.thread("t", account="ana")
        for _ in range(2):
            with pytest.raises(RoleSourceUnavailable, match="workspace and account role could not be read") as caught:
                await thread.converse("Hi")
            assert "could not be reached" in str(caught.value)
            assert caught.value.remedy == "start it, or correct its address or command"
            assert caught.value.__context__ is None
        assert lm.calls == []
        with over_http(StubHost(), port=port):
            assert (await thread.converse("Hi")).text == "Fine."


@pytest.mark.requirement("R14")
async def test_what_a_late_host_offers_counts_from_the_first_turn_that_reaches_it(tmp_path: Path) -> None:
    lm, port = answering(), free_port()
    host = HttpHost(f"http://127.0.0.1:{port}/mcp")
    roles = Roles(host=host, sources={Tier.CHANNEL: channel_source}, on_unavailable="skip")
    async with scripted_agent(tmp_path, lm, roles=roles) as agent:
        thread = agent.thread("t", channel="c")
        turn = await thread.converse("1")
        assert (turn.skipped_tiers, turn.role_tiers) == ((Tier.WORKSPACE,), (Tier.CHANNEL,))
        with over_http(StubHost(), port=port):
            turn = await thread.converse("2")
            assert (turn.skipped_tiers, turn.role_tiers) == ((), ())
            await agent.roles.put(Tier.CHANNEL, Role("c", "of the host"), scope_id="c")
            await thread.converse("3")
    assert [call.role for call in lm.calls] == ["channel of c", None, "of the host"]


def listening(stub: StubHost) -> int:
    return sum(method == "subscriptions/listen" for _, method in stub.requests)


def has(told: list[object], number: int) -> bool:
    return len(told) == number


async def test_a_change_in_the_host_is_reported_for_the_scopes_in_use() -> None:
    stub, told = StubHost(), list[object]()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            store.on_change(lambda tier, scope_id: told.append((tier, scope_id)))
            await store.list({Tier.WORKSPACE: "w"})
            assert await eventually(lambda: bool(stub.bus._listeners))
            for change in (("workspace", "w"), ("workspace", "other"), ("account", "ana")):
                await asyncio.to_thread(stub.change, *change, "new")
            assert await eventually(lambda: told == [(Tier.WORKSPACE, "w")])
            await store.list({Tier.WORKSPACE: "w"})
            assert listening(stub) == 1
            await store.list({Tier.WORKSPACE: "w", Tier.ACCOUNT: "ana"})
            assert await eventually(lambda: listening(stub) == 2)
            # The second stream may not be open yet; a change before it is told to nobody.
            async with asyncio.timeout(10):
                while (Tier.ACCOUNT, "ana") not in told:
                    await asyncio.to_thread(stub.change, "account", "ana", "newer")


async def test_a_host_that_ends_the_stream_is_listened_to_again_with_the_next_question() -> None:
    stub, told = StubHost(), list[object]()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            store.on_change(lambda tier, scope_id: told.append((tier, scope_id)))
            for number in (1, 2, 3):
                await store.list({Tier.WORKSPACE: "w"})
                assert await eventually(lambda: len(stub.bus._listeners) == 1)
                await asyncio.to_thread(stub.change, "workspace", "w", "new")
                assert await eventually(functools.partial(has, told, number))
                stub.end_streams()
                assert await eventually(lambda: not stub.bus._listeners)
    assert listening(stub) == 3
