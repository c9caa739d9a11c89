"""The role of a thread: set, replaced and cleared in mid-conversation, held in memory alone (R10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from worldagent import Role, Roles, Tier
from worldagent.core import Scope
from worldagent.core.errors import AgentClosed, InvalidArgument, RoleInvalid, RoleTooLong
from worldagent.testing import VirtualClock, assert_no_role_leak

HARSH = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
MILD = Role("friend", "Be as mild as the baker at the harbour in the morning.")


@pytest.mark.requirement("R10")
async def test_it_is_set_replaced_and_cleared_and_counts_from_the_next_turn(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("1")).role_tiers == ()
        for role in (HARSH, MILD):
            thread.role.set(role)
            assert (await thread.converse("2")).role_tiers == (Tier.THREAD,)
        assert (await agent.thread("another").converse("3")).role_tiers == ()
        assert thread.role.clear()
        assert not thread.role.clear()
        assert (await thread.converse("4")).role_tiers == ()
    assert [call.role for call in lm.calls] == [None, HARSH.content, MILD.content, None, None]


@pytest.mark.requirement("R10", "R7")
async def test_the_conversation_keeps_that_it_changed_and_never_to_what(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t", account="ana")
        thread.role.set(HARSH)
        thread.role.set(MILD)
        assert await thread.history() == ()
        await thread.converse("1")
        await thread.converse("2")
        history = await thread.history()
    assert [message.kind for message in history] == ["role", "role", "message", "answer", "message", "answer"]
    assert [message.author for message in history[:2]] == ["ana", "ana"]
    assert all(set(message.body) == {"change", "at"} for message in history[:2])
    canaries = [HARSH.content, MILD.content]
    assert_no_role_leak([tmp_path, *history], canaries)


@pytest.mark.requirement("R10")
async def test_it_ends_with_its_time_and_with_the_process(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), clock=clock, settings={"thread_role_ttl": 100}) as agent:
        thread = agent.thread("t")
        for ttl, seconds in ((None, 100), (7, 7)):
            thread.role.set(HARSH, ttl=ttl)
            await clock.advance(seconds - 1)
            assert (await thread.converse("1")).role_tiers == (Tier.THREAD,)
            await clock.advance(1)
            assert (await thread.converse("2")).role_tiers == ()
        thread.role.set(HARSH)
    with pytest.raises(AgentClosed):
        thread.role.set(HARSH)
    async with scripted_agent(tmp_path, answering()) as agent:
        assert (await agent.thread("t").converse("3")).role_tiers == ()


@pytest.mark.requirement("R10")
async def test_there_is_a_bound_on_how_many_are_held(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        for number in range(1001):
            agent.thread(f"t{number}").role.set(HARSH)
        assert (await agent.thread("t0").converse("1")).role_tiers == ()
        assert (await agent.thread("t1").converse("1")).role_tiers == (Tier.THREAD,)


@pytest.mark.requirement("R10", "R2")
async def test_it_goes_before_a_source_of_the_embedder_which_counts_again_once_it_is_cleared(tmp_path: Path) -> None:
    async def source(scope: Scope) -> Role | None:
        return MILD

    lm = answering()
    async with scripted_agent(tmp_path, lm, roles=Roles(sources={Tier.THREAD: source})) as agent:
        thread = agent.thread("t")
        thread.role.set(HARSH)
        await thread.converse("1")
        thread.role.clear()
        await thread.converse("2")
    assert [call.role for call in lm.calls] == [HARSH.content, MILD.content]


async def test_what_is_no_role_or_no_time_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), settings={"role_limit": 100}) as agent:
        role = agent.thread("t").role
        with pytest.raises(RoleInvalid):
            role.set("Be harsh.")  # type: ignore[arg-type]  # on purpose
        with pytest.raises(RoleTooLong):
            role.set(Role("x", "y" * 101))
        for ttl in (0, -1, float("inf"), True):
            with pytest.raises(InvalidArgument, match="ttl"):
                role.set(HARSH, ttl=ttl)
        assert not role.clear()
