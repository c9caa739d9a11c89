"""An agent whose conversations are handed to the member `bdr`, which sets prices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.agents import calls, scripted_agent
from support.processes import add, wait_for_kill
from support.role_specs import spec_of
from worldagent import Policy, Rule, WorldAgent, tool
from worldagent.harness import Function
from worldagent.members import AuthorityConfig, RoleSpec, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

CONFIG = WorkspaceConfig(id="novel", owner="charles")
PRICES = Policy(rules=(Rule(decision="approve", function="price"),))
made: list[str] = []
"""What was done in this process."""


@tool(risk="write")
async def price(amount: int) -> str:
    made.append(f"price {amount}")
    return f"the price is {amount}"


@tool(risk="write")
async def hire(name: str) -> str:
    made.append(f"hire {name}")
    return name


def bdr(**more: Any) -> RoleSpec:
    given: dict[str, Any] = {"operator_ids": ("price",), "authority": AuthorityConfig(autonomous=("price",))} | more
    return replace(spec_of("bdr", **given), soul="You are careful.")


def agent_of(home: Path, lm: ScriptedLM, *members: RoleSpec, **more: Any) -> WorldAgent:
    config = replace(CONFIG, roles=members or (bdr(),))
    given: dict[str, Any] = {"tools": [price, hire], "society": config} | more
    return scripted_agent(home, lm, **given)


async def die(home: Path, at: int) -> None:
    """A member sets a price for a person, and its process waits to be killed at a call of its model."""

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if "Q2" not in call.text:
            return {"reply": "A1"}
        if len(call.steps) == at:
            await wait_for_kill()
        return calls(("price", {"amount": 3}))

    async with agent_of(home, ScriptedLM(reply), policy=PRICES, tools=[noting(home)]) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        await thread.converse("Q2")


def noting(home: Path) -> Function:
    """A price that is noted in a file, so that another process knows of it."""

    @tool(name="price", risk="write")
    async def noted(amount: int) -> str:
        add(home / "prices", str(amount))
        return f"the price is {amount}"

    return noted
