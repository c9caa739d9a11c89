"""Turns that wait for a person and were noted with a key of role digests, in this process or another."""

from pathlib import Path
from typing import Any

from support.agents import Muse, Nothing, Said, answering, open_pauses, scripted_agent
from worldagent import Role, Tier, WorldAgent
from worldagent.agent import Composed
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool

HOUSE = Role("house", "Answer as the keeper of the seventh lighthouse would answer.")
SKILL = Composed("Pay as the baker at the harbour would pay.", shape="pays")


async def _paid() -> str:
    return "paid"


async def _pays(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=await ctx.call("pay", {}))


async def _hands_on(params: Nothing, ctx: TaskContext) -> Any:
    return await ctx.task("pays", {}, role=Role("code", HOUSE.content))


def opened(home: Path, **settings: Any) -> WorldAgent:
    return scripted_agent(
        home,
        answering(),
        tools=[tool(name="pay", approval=True)(_paid)],
        shapes=[Shape("pays", Nothing, Said, _pays, entry=Muse), Shape("hands_on", Nothing, Said, _hands_on)],
        settings={"role_cache_ttl": 0, **settings},
    )


async def pause_all(agent: WorldAgent) -> None:
    """Four turns that wait: a plain one, one of a skill, one whose task has a role, one with a role."""
    plain = [
        await agent.thread("plain").task("pays", {}),
        await agent.thread("skill").run_skill(SKILL),
        await agent.thread("nested").task("hands_on", {}),
    ]
    await agent.roles.put(Tier.WORKSPACE, HOUSE)
    roled = await agent.thread("roled").task("pays", {})
    assert {turn.status for turn in (*plain, roled)} == {"paused"}


async def resumed(agent: WorldAgent, name: str, how: Any = "fail") -> str:
    thread = agent.thread(name)
    answers = {pause.id: Approve() for pause in await open_pauses(thread)}
    if name != "roled":
        await agent.roles.delete(Tier.WORKSPACE)
    turn = await thread.resume(answers, on_role_change=how, skill=SKILL if name == "skill" else None)
    return turn.status


def contents(place: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
