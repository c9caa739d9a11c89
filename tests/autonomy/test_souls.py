"""A soul is who a member is: stored, the same for a whole turn, and never a role (A13)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.role_specs import spec_of
from worldagent import Approve, Role, WorldAgent, tool
from worldagent.agent.thread import as_member
from worldagent.autonomy import Gateway
from worldagent.core.errors import GraphChanged
from worldagent.society import AuthorityConfig, RoleSpec, WorkspaceConfig
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
