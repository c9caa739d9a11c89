"""What can be called is found by what it is good for (H10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agents import answering, scripted_agent, shape
from worldagent.core.errors import AgentClosed
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Worker, flow, tool


@tool(risk="read_only", capabilities=["prices", "hats"])
async def price(what: str) -> int:
    return len(what)


@flow(capabilities=["prices"])
async def cheapest(ctx: CallContext) -> int:
    return min(len(found.name) for found in ctx.registry.find("hats"))


async def said(ctx: TaskContext) -> str:
    return "Fine."


@pytest.mark.requirement("H10")
async def test_functions_and_workers_are_found_by_what_they_are_good_for(tmp_path: Path) -> None:
    workers = [Worker("shopper", "You buy.", capabilities=("prices",)), Worker("critic", "You judge.")]
    agent = scripted_agent(tmp_path, answering(), tools=[price, cheapest], workers=workers, shapes=[shape(said)])
    with pytest.raises(AgentClosed):
        agent.find("prices")
    async with agent:
        assert {found.name for found in agent.find("prices")} == {"price", "cheapest", "shopper"}
        assert [found.name for found in agent.find("hats")] == ["price"]
        assert agent.find("price") == agent.find("") == ()
        assert set(agent.find("prices")) <= set(agent.functions)
        assert await agent.call("cheapest", {}) == len("price")
