"""Homes whose turns all wait in the middle of a step: before tasks had nodes, and before capabilities (D15).

Every kind of dispatch waits for an approval: a tool, a worker, a shape and a skill, each alone and side by side, a
schedule, a member of a society, and work that the host dispatched. `tests/storage/test_waiting_homes.py` resumes them.

As a program: `python tests/support/make_waiting_home.py DAY` writes a folder, which is never written again. The agent
here is what its users' code is to them, so do not change it.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from support.agents import calls
from support.make_home import HOUSE, KEY, dumped
from support.role_specs import spec_of
from support.schedules import START, hourly
from support.skill_turns import package
from worldagent import Policy, Role, Settings, Storage, Tier, WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Worker, tool
from worldagent.members import SEND_RULES, AuthorityConfig, Gateway, WorkspaceConfig
from worldagent.scheduling import Schedules
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

WAITING = Path(__file__).resolve().parents[1] / "fixtures" / "waiting"
ROLE = Role("pirate", "Answer as the pirate Long Jane Silverhook would, and mention the ninth wave.")

ALONE = {
    "tool": ("pay", {"what": "tool"}),
    "worker": ("buyer", {"request": "Buy for the worker."}),
    "shape": ("order", {"what": "shape"}),
    "skill": ("skill", {"name": "tea", "request": "Buy for the skill."}),
}
"""The call that the conversation of each of these threads makes."""

PAID = {name: [f"pay {name}"] for name in ALONE} | {
    "mixed": [f"pay {name}" for name in ALONE],
    "half": ["pay shape"],
    "schedule:tide": ["pay toll"],
    "member cro": ["pay bribe"],
    "host task": ["pay host"],
    "host skill": ["pay skill"],
}
"""What is paid when the turn of each thread resumes."""


class Order(BaseModel):
    what: str


class Receipt(BaseModel):
    text: str


def waiting_agent(home: Path, folder: Path, done: list[str], clock: VirtualClock, **more: Any) -> WorldAgent:
    """The agent of the home.

    Args:
        home: Its home.
        folder: Where its skill is written.
        done: Gets its effects.
        clock: Its clock.
        more: Further arguments of the agent.
    """

    async def write(what: str) -> str:
        done.append(f"write {what}")
        return what

    async def pay(what: str) -> str:
        done.append(f"pay {what}")
        return f"paid for the {what}"

    async def order(given: Order, ctx: TaskContext) -> Receipt:
        await ctx.call("write", {"what": given.what})
        return Receipt(text=await ctx.call("pay", {"what": given.what}))

    skills = package(folder, text="Pay, then answer.").parent
    return WorldAgent(
        "novel",
        lm=ScriptedLM(_reply),
        tools=[tool(name="write", risk="read_only")(write), tool(name="pay", approval=True)(pay)],
        workers=[Worker("buyer", "You buy.", "buys", tools=("pay",))],
        shapes=[Shape("order", Order, Receipt, order, description="orders a thing")],
        skills=[skills],
        society=WorkspaceConfig(id="novel", owner="charles"),
        policy=Policy(rules=SEND_RULES),
        storage=Storage(home=home),
        settings=Settings(role_key=SecretStr(KEY), model_attempts=1),
        clock=clock,
        **more,
    )


def _reply(call: ScriptedCall) -> dict[str, Any]:
    skill = '<skill name="tea">' in call.system
    if skill or "You buy." in call.system:
        field = "reply" if skill else "result"
        what = "skill" if skill else "worker"
        return {field: "Bought."} if call.steps else {field: "", **calls(("pay", {"what": what}))}
    field = "result" if "task" in call.fields else "reply"
    if call.steps:
        return {field: "All is bought."}
    said = str(call.fields["message"])
    if "mixed" in said:
        return {field: "", **calls(*ALONE.values())}
    if "half" in said:
        return {field: "", **calls(("write", {"what": "half"}), ALONE["shape"])}
    if "tide" in said:
        return {field: "", **calls(("pay", {"what": "toll"}))}
    if "bribe" in said:
        return {field: "", **calls(("pay", {"what": "bribe"}))}
    return {field: "", **calls(ALONE[said.removeprefix("Buy by ").removesuffix(".")])}


@asynccontextmanager
async def opened(home: Path, folder: Path, done: list[str]) -> AsyncGenerator[tuple[WorldAgent, VirtualClock]]:
    """The agent, an hour after its schedule was made."""
    clock = VirtualClock(START)
    await clock.advance(3600)
    async with waiting_agent(home, folder, done, clock) as agent:
        yield agent, clock


async def fill(home: Path, folder: Path) -> None:
    """Make the home. Nothing is paid in it."""
    done: list[str] = []
    clock = VirtualClock(START)
    async with waiting_agent(home, folder, done, clock) as agent:
        await agent.roles.put(Tier.WORKSPACE, HOUSE)
        for name in (*ALONE, "mixed", "half"):
            role = ROLE if name in ("skill", "mixed") else None
            turn = await agent.thread(name, account="ada").converse(f"Buy by {name}.", role=role)
            assert turn.status == "paused", name
        assert (await agent.thread("host task", account="ada").task("order", {"what": "host"})).status == "paused"
        skill = await agent.thread("host skill", account="ada").run_skill("tea", {"request": "Buy."}, role=ROLE)
        assert skill.status == "paused"
        await agent.society.join(
            spec_of("cro", operator_ids=("pay",), authority=AuthorityConfig(autonomous=("pay",))), name="CRO"
        )
        await agent.society.mail.send("root", "cro", "Pay a bribe.")
        assert await Gateway(agent).deliver() == 0
        schedules = Schedules(agent)
        await schedules.add(hourly(workspace="novel", unattended="pause"))
        await clock.advance(3600)
        await schedules.fire_due()
        async with asyncio.timeout(30):
            while [run.status for run in await schedules.history("tide")] != ["paused"]:
                await asyncio.sleep(0.01)
                await schedules.fire_due()
    assert sorted(done) == ["write half", "write host", *["write shape"] * 3]


def main() -> None:
    kept = WAITING / sys.argv[1]
    if kept.exists():
        raise SystemExit(f"{kept} exists already, and is never made again")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        asyncio.run(fill(home, Path(folder)))
        texts = dumped(home)
    kept.mkdir(parents=True)
    for name, text in texts.items():
        (kept / f"{name}.sql").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
