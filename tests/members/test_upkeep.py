"""What children inherit, and what is left of members that ended: their turns and their memory (A7, A11)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import open_pauses, scripted_agent, state_of
from support.role_specs import bdr_template, spec_of, workspace_of
from support.society import acting
from worldagent import Memory, WorldAgent, tool
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import StorageUnavailable
from worldagent.members import (
    AgentMemory,
    Gateway,
    Society,
)
from worldagent.members.data.roles import ClearanceProfile, RoleLifecycle, RoleStatus, TrustProfile
from worldagent.members.life.members import Member
from worldagent.members.life.upkeep import MemberUpkeep, inherited, learned
from worldagent.memory.entries import Insight
from worldagent.testing import ScriptedLM, VirtualClock

BDR = bdr_template(clearance=ClearanceProfile(default="internal"))


def insight(text: str, role_id: str = "cro", **more: Any) -> Insight:
    given: dict[str, Any] = {"confidence": 0.9, "domain": "revenue", "tags": ("apac",)}
    return Insight(id=f"ins.{text}", role_id=role_id, text=text, **given | more)


@asynccontextmanager
async def society(home: Path, lm: ScriptedLM | None = None, **more: Any) -> AsyncGenerator[WorldAgent]:
    """A society with a CRO, a BDR of it that it made, and an intern of the BDR."""
    config = workspace_of(BDR, brief="derived", **more.pop("policy", {}))
    lm = lm or ScriptedLM(lambda call: {"result": "Done."})
    async with scripted_agent(home, lm, society=config, memory=Memory(), **more) as agent:
        secret = ClearanceProfile(default="secret")
        await agent.society.join(spec_of("cro", clearance=secret))
        yield agent


async def texts(agent: WorldAgent, member: str) -> dict[str, tuple[float, tuple[str, ...]]]:
    found = await AgentMemory(agent, member).recall_insights(limit=100)
    return {each.text: (each.confidence, each.tags) for each in found if each.role_id == member}


def member(role_id: str, *domains: str) -> Member:
    life = RoleLifecycle(status=RoleStatus.ACTIVE, created_at=VirtualClock().now(), created_by="cro")
    spec = spec_of(role_id, "cro", domains=domains)
    return Member(spec=spec, name=role_id, interface=None, life=life, trust=TrustProfile())


# --- inheritance ------------------------------------------------------------------------------------------------------

TAGS = ("apac", "emea", "price")
INSIGHTS = st.lists(
    st.builds(
        lambda place, confidence, domain, tags: insight(
            f"t{place}", confidence=confidence, domain=domain, tags=tuple(sorted(tags))
        ),
        st.integers(0, 10_000),
        st.floats(0, 1),
        st.sampled_from(("revenue", "people", "")),
        st.sets(st.sampled_from(TAGS)),
    ),
    unique_by=lambda each: each.id,
    max_size=40,
)


@pytest.mark.requirement("A11")
@given(INSIGHTS, st.sets(st.sampled_from(("APAC", "emea")), max_size=2))
def test_a_child_inherits_what_is_relevant_at_seven_tenths(insights: list[Insight], about: set[str]) -> None:
    found = inherited(insights, member("bdr", "revenue"), about)
    wanted = {each.lower() for each in about}
    relevant = [each for each in insights if each.domain == "revenue"]
    relevant = [each for each in relevant if not about or not each.tags or wanted & {*each.tags}]
    assert len(found) == min(20, len(relevant))
    assert {each.text for each in found} <= {each.text for each in relevant}
    sources = {each.text: each for each in insights}
    for each in found:
        source = sources[each.text]
        assert each.confidence == pytest.approx(0.7 * source.confidence, abs=1e-4)
        assert each.tags == (*source.tags, "inherited")
        assert each.role_id == "bdr"
    left = {each.text for each in relevant} - {each.text for each in found}
    assert all(sources[one].confidence <= sources[two.text].confidence for one in left for two in found)
    assert learned(found, "cro") == ()


@pytest.mark.requirement("A11", "A9")
@pytest.mark.parametrize("approval", [False, True])
@pytest.mark.on_every_database(soak=True)
async def test_a_spawned_member_inherits_once_it_is_active(tmp_path: Path, approval: bool) -> None:
    async with society(tmp_path, policy={"spawn_requires_approval": approval}) as agent:
        insights = [
            insight("Budgets open in April."),
            insight("Trust is earned by mail.", tags=()),
            insight("Berlin closes early.", tags=("emea",)),
            insight("Salaries are low.", domain="people"),
            insight("The margin is low.", classification="confidential"),
            insight("From above.", tags=("apac", "inherited")),
        ]
        await AgentMemory(agent, "cro").store_insights(insights)
        await agent.society.spawn("cro", "bdr", {"territory": "APAC"})
        upkeep = MemberUpkeep(agent)
        if approval:
            assert await upkeep.run() == 0
            await agent.society.approve_spawn("bdr-apac")
        assert (await upkeep.run(), await upkeep.run()) == (1, 0)
        assert await texts(agent, "bdr-apac") == {
            "Budgets open in April.": (0.63, ("apac", "inherited")),
            "Trust is earned by mail.": (0.63, ("inherited",)),
            "From above.": (0.63, ("apac", "inherited")),
        }


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A7")
@pytest.mark.on_every_database(soak=True)
async def test_the_memory_of_a_member_ends_by_its_policy(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        for policy in ("archive", "merge_to_parent", "delete"):
            await agent.society.join(spec_of(policy, "cro", memory_policy=policy))
            own = [insight(f"Of {policy}.", policy), insight(f"Inherited by {policy}.", policy, tags=("inherited",))]
            await AgentMemory(agent, policy).store_insights(own)
            await agent.society.terminate(policy)
        upkeep = MemberUpkeep(agent)
        assert (await upkeep.run(), await upkeep.run()) == (3, 0)
        assert {*await texts(agent, "archive")} == {"Inherited by archive.", "Of archive."}
        assert await texts(agent, "cro") == {"Of merge_to_parent.": (0.9, ("apac",))}
        assert await texts(agent, "delete") == {}


@pytest.mark.requirement("A7")
async def test_what_a_branch_learned_reaches_the_member_above_it(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        await agent.society.join(spec_of("bdr", "cro", memory_policy="merge_to_parent"))
        await agent.society.join(spec_of("intern", "bdr", memory_policy="merge_to_parent"))
        await AgentMemory(agent, "intern").store_insights([insight("Of the intern.", "intern")])
        await agent.society.terminate("bdr")
        await MemberUpkeep(agent).run()
        assert [*await texts(agent, "cro")] == ["Of the intern."]


@pytest.mark.requirement("A7")
async def test_a_work_that_was_cut_off_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with society(tmp_path) as agent:
        await agent.society.join(spec_of("bdr", "cro", memory_policy="merge_to_parent"))
        await AgentMemory(agent, "bdr").store_insights([insight("Of bdr.", "bdr")])
        await agent.society.terminate("bdr")

        async def cut_off(_: Society, number: int) -> None:
            raise StorageUnavailable("the database is gone", remedy="start it")

        with monkeypatch.context() as patched:
            patched.setattr(Society, "memory_done", cut_off)
            assert await MemberUpkeep(agent).run() == 0
        assert await MemberUpkeep(agent).run() == 1
        assert await texts(agent, "cro") == {"Of bdr.": (0.9, ("apac",))}


@pytest.mark.requirement("A7")
async def test_a_gateway_cancels_the_turns_of_a_terminated_member_and_takes_its_worker(tmp_path: Path) -> None:
    @tool(risk="destructive")
    async def wipe(what: str) -> str:
        return what

    async with society(tmp_path, acting(bdr=("wipe", {"what": "all"})), tools=[wipe]) as agent:
        await agent.society.join(spec_of("bdr", "cro", operator_ids=("wipe",), memory_policy="delete"))
        gateway = Gateway(agent)
        await agent.society.mail.send("cro", "bdr", "Wipe it.")
        await gateway.deliver()
        thread = agent.thread("member bdr", account="member:novel/bdr")
        assert [each.function for each in await open_pauses(thread)] == ["wipe"]
        await agent.society.terminate("bdr")
        await gateway.deliver()
        state = await state_of(thread)
        assert (state.status, await open_pauses(thread)) == ("cancelled", [])
        assert await agent.society.memory_due() == ()
        assert "bdr" not in inside(agent).parts.engine.services.registry.workers
        assert await agent.society.mail.waiting() == []


@pytest.mark.requirement("A7")
async def test_a_message_that_was_taken_when_its_receiver_was_suspended_is_delivered_later(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        await agent.society.join(spec_of("bdr", "cro"))
        letter = await agent.society.mail.send("cro", "bdr", "Hello.")
        gateway = Gateway(agent)
        assert not await agent.society.mail.answer(letter.message.id)
        await agent.society.suspend("bdr")
        assert await gateway._delivered(letter)
        assert await agent.society.mail.waiting() == []
        await agent.society.resume("bdr")
        assert [each.message.id for each in await agent.society.mail.waiting()] == [letter.message.id]
        assert await gateway.deliver() == 1
        assert await agent.society.mail.waiting() == []
