"""A soul is who a member is: stored, the same for a whole turn, and never a role (A13)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.role_specs import spec_of
from worldagent import Approve, Role, WorldAgent, tool
from worldagent.agent.runtime.inside import inside
from worldagent.agent.thread import as_member
from worldagent.core.errors import GraphChanged
from worldagent.members import AuthorityConfig, Gateway, RoleSpec, Society, WorkspaceConfig, export_member
from worldagent.members.graph import graph_of
from worldagent.testing import ScriptedLM

REQUEST = {"worker": "bdr", "request": '{"message": "Set the price."}'}
CONFIG = WorkspaceConfig(id="novel", owner="charles")
TONE = "Answer as a sea captain would, with a smile and in short sentences."

pytestmark = pytest.mark.requirement("A13")


@tool(risk="write")
async def price(amount: int) -> str:
    return f"the price is {amount}"


def spec(soul: str) -> RoleSpec:
    return replace(spec_of("bdr", operator_ids=("price",), authority=AuthorityConfig(autonomous=("price",))), soul=soul)


async def paused(home: Path) -> tuple[str, str]:
    """A turn of a member that waits for an approval."""
    lm = ScriptedLM([calls(("price", {"amount": 3}))])
    async with scripted_agent(home, lm, tools=[price], society=CONFIG) as agent:
        await agent.society.join(spec("You are careful."))
        await Gateway(agent).enlist("bdr")
        turn = await as_member(of_bdr(agent), "bdr").task("subagent", REQUEST)
        [pause] = turn.pauses
        return turn.id, pause.id


def of_bdr(agent: WorldAgent) -> Any:
    return agent.thread("member bdr", account="member:novel/bdr")


@pytest.mark.parametrize("soul", ["You are careful.", "You are bold."])
async def test_a_turn_that_waits_keeps_the_soul_that_it_began_with(tmp_path: Path, soul: str) -> None:
    _, pause = await paused(tmp_path)
    lm = ScriptedLM([{"result": "Done."}])
    async with scripted_agent(tmp_path, lm, tools=[price], society=CONFIG) as agent:
        await agent.society.members.remove("novel", "bdr")
        await agent.society.join(spec(soul))
        await Gateway(agent).enlist("bdr")
        if soul == "You are careful.":
            assert (await of_bdr(agent).resume({pause: Approve()})).status == "done"
            return
        with pytest.raises(GraphChanged, match="'bdr' has changed since then"):
            await of_bdr(agent).resume({pause: Approve()})
    assert lm.calls == []


@pytest.mark.on_every_database
async def test_another_soul_has_the_next_version_and_the_same_text_keeps_it(tmp_path: Path) -> None:
    async def version(soul: str, **more: Any) -> int:
        config = replace(CONFIG, roles=(replace(spec(soul), **more),))
        async with scripted_agent(tmp_path, ScriptedLM([]), tools=[price], society=config) as agent:
            exported = await export_member(agent.upkeep, "bdr")
            [listed] = (await graph_of(agent.society))["members"]
            found: int = (await agent.society.members.member("novel", "bdr")).soul_version
            assert (exported["member"]["soul_version"], listed["soul_version"]) == (found, found)
            return found

    assert await version("You are careful.") == 1
    assert await version("You are careful.", domains=("sales",)) == 1
    assert await version("You are bold.") == 2
    assert await version("You are careful.") == 3


@pytest.mark.on_every_database
async def test_agents_that_open_at_once_with_another_soul_raise_its_version_once(tmp_path: Path) -> None:
    before, after = (replace(CONFIG, roles=(spec(soul),)) for soul in ("You are careful.", "You are bold."))
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[price], society=before) as agent:
        await asyncio.gather(*(Society(after, inside(agent).stores.database).bootstrap() for _ in range(4)))
        assert (await agent.society.members.member("novel", "bdr")).soul_version == 2


async def test_a_member_that_was_removed_begins_again_with_the_first_soul(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[price], society=CONFIG) as agent:
        for soul in ("You are careful.", "You are bold."):
            await agent.society.join(spec(soul))
            assert (await agent.society.members.member("novel", "bdr")).soul_version == 1
            await agent.society.members.remove("novel", "bdr")


async def test_roles_come_on_top_of_a_soul(tmp_path: Path) -> None:
    lm = ScriptedLM([{"result": "Done."}])
    async with scripted_agent(tmp_path, lm, tools=[price], society=CONFIG) as agent:
        await agent.society.join(spec("You are careful."))
        await Gateway(agent).enlist("bdr")
        turn = await as_member(of_bdr(agent), "bdr").task("subagent", REQUEST, role=Role("captain", TONE))
        assert turn.role_tiers == ("call",)
    [call] = lm.calls
    assert "You are careful." in call.system
    assert TONE not in call.system
    assert call.fields["role"].strip() == TONE
