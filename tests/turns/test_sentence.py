"""The sentence that the package was ordered with, clause by clause, in code that a stranger would write.

"A LangGraph World Agent dispatches `task()` subgraphs whose entry DSPy Signatures declare a typed `role` input filled
by a call, thread, channel, workspace, account resolver, so roles never enter checkpointed state."
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel

from support.agents import calls
from worldagent import Role, Roles, Shape, Storage, Tier, Worker, WorldAgent
from worldagent.agent import GraphContext, Thread
from worldagent.core import Scope
from worldagent.graphs import TaskContext, task
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

ORDER = (Tier.ACCOUNT, Tier.WORKSPACE, Tier.CHANNEL, Tier.THREAD, Tier.CALL)
"""The tiers, the lowest precedence first."""

ROLES = {
    tier: Role(tier.value, f"QUARTZ-{tier.value.upper()}-CANARY: judge as this tier asks you to.") for tier in ORDER
}
CONFIG: Any = {"configurable": {"thread_id": "t"}}
ASK: Any = {"messages": [("user", "Is 'Hats!' a good text?")]}


class Review(dspy.Signature):
    """Review the draft of an advertisement."""

    draft: str = dspy.InputField()
    role: str | None = dspy.InputField(default=None, desc="How this reviewer works")
    verdict: str = dspy.OutputField()


class Draft(BaseModel):
    draft: str


class Verdict(BaseModel):
    verdict: str


async def review(given: Draft, ctx: TaskContext) -> Verdict:
    """Ask the entry Signature, and dispatch another task."""
    found = await ctx.predict(Review, draft=given.draft)
    second = await task("subagent", {"worker": "critic", "request": given.draft}, ctx)
    return Verdict(verdict=f"{found['verdict']} {second.text}")


def reply(call: ScriptedCall) -> dict[str, Any]:
    if "draft" in call.fields:
        return {"verdict": "Dull."}
    if "request" in call.fields:
        return {"result": "Short."}
    return {"reply": "They say: dull."} if call.steps else {"reply": "", **calls(("review", {"draft": "Hats!"}))}


@asynccontextmanager
async def shop(home: Path, lm: ScriptedLM) -> AsyncGenerator[WorldAgent]:
    async def of_the_channel(scope: Scope) -> Role | None:
        return ROLES[Tier.CHANNEL] if scope.channel == "den" else None

    async with WorldAgent(
        "shop",
        lm=lm,
        shapes=[Shape("review", Draft, Verdict, review, entry=Review, description="reviews a draft")],
        workers=[Worker("critic", "You judge.", "judges a text")],
        roles=Roles(sources={Tier.CHANNEL: of_the_channel}),
        storage=Storage(home=home),
    ) as agent:
        yield agent


async def filled(agent: WorldAgent) -> Thread:
    """A thread with a role at each tier that outlives a call."""
    await agent.roles.put(Tier.WORKSPACE, ROLES[Tier.WORKSPACE])
    await agent.roles.put(Tier.ACCOUNT, ROLES[Tier.ACCOUNT], scope_id="ana")
    thread = agent.thread("t", account="ana", channel="den")
    thread.role.set(ROLES[Tier.THREAD])
    return thread


@pytest.mark.requirement("T19")
async def test_a_langgraph_world_agent(tmp_path: Path) -> None:
    async with shop(tmp_path, ScriptedLM(reply)) as agent:
        graph = agent.graph()
        assert isinstance(graph, CompiledStateGraph)
        state = await graph.ainvoke(ASK, CONFIG)
    assert state["messages"][-1].content == "They say: dull."


@pytest.mark.requirement("T18")
async def test_dispatches_task_subgraphs(tmp_path: Path) -> None:
    async with shop(tmp_path, ScriptedLM(reply)) as agent:
        graph = agent.graph()
        assert [name for name, _ in graph.get_subgraphs(recurse=True)] == ["converse", "converse|subagent"]
        places = [
            [step.partition(":")[0] for step in place]
            async for place, _ in graph.astream(ASK, CONFIG, stream_mode="updates", subgraphs=True)
        ]
    # The turn, its task `review`, and the worker to which that task dispatches with `task()`.
    assert places == [["converse"], ["converse", "review"], ["converse"], ["converse"], []]


@pytest.mark.requirement("R18")
async def test_whose_entry_dspy_signatures_declare_a_typed_role_input(tmp_path: Path) -> None:
    assert Review.input_fields["role"].annotation == str | None
    with dspy.context(lm=DummyLM([{"verdict": "Dull."}])):  # in plain dspy it is an input like any other
        assert dspy.Predict(Review)(draft="Hats!", role="Be harsh.").verdict == "Dull."
    lm = ScriptedLM(reply)
    async with shop(tmp_path, lm) as agent:
        await agent.thread("t").task("review", {"draft": "Hats!"}, role=Role("harsh", "Be harsh."))
        await agent.thread("t").task("review", {"draft": "Hats!"})
    roles = [(call.fields.get("draft"), call.role) for call in lm.calls]
    assert roles == [("Hats!", "Be harsh."), (None, None), ("Hats!", None), (None, None)]  # a worker inherits none


@pytest.mark.requirement("R2", "R4")
async def test_filled_by_a_call_thread_channel_workspace_account_resolver(tmp_path: Path) -> None:
    lm = ScriptedLM(reply)
    async with shop(tmp_path, lm) as agent:
        thread = await filled(agent)
        turn = await thread.task("review", {"draft": "Hats!"}, role=ROLES[Tier.CALL])
    assert turn.role_tiers == ORDER
    filled_with = lm.calls[0].role or ""
    places = [filled_with.index(ROLES[tier].content) for tier in ORDER]
    assert places == sorted(places)


@pytest.mark.requirement("R7", "R19")
async def test_so_roles_never_enter_checkpointed_state(tmp_path: Path) -> None:
    saver, lm, home = InMemorySaver(), ScriptedLM(reply), tmp_path / "home"
    async with shop(home, lm) as agent:
        await filled(agent)
        context = GraphContext(account="ana", channel="den", role=ROLES[Tier.CALL])
        graph = agent.graph(checkpointer=saver)
        chunks = [each async for each in graph.astream(ASK, CONFIG, context=context, subgraphs=True)]
        state = await graph.aget_state(CONFIG, subgraphs=True)
        graphs: list[Any] = [graph, *(each for _, each in graph.get_subgraphs(recurse=True))]
        assert "role" not in {channel for each in graphs for channel in each.channels}
    assert all(role.content in (lm.calls[0].role or "") for role in ROLES.values())
    files = [file.read_bytes() for file in home.iterdir() if file.name.startswith("agent.db")]
    kept = [chunks, state, saver.storage, saver.blobs, saver.writes, *files]
    assert_no_role_leak(kept, [role.content for role in ROLES.values()])
