"""What an edit kept under another name and is removed: what its turns called and where they stood goes with it.

Those turns ran under the name of the thread that was edited, which goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, scripted_agent
from support.jobs import Nothing, Said
from support.removed import WORDS, found, look, pay
from support.tables import rows
from worldagent import WorldAgent
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.on_every_database, pytest.mark.requirement("T4")]


async def _work(params: Nothing, ctx: TaskContext) -> Said:
    await ctx.call("look", {"what": WORDS["argument"]})
    await ctx.calls.ask_person(WORDS["question"])
    return Said(text=await ctx.call("pay", {"what": WORDS["argument"]}))


async def _wait(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=await ctx.calls.ask_person("Which?"))


def _reply(call: ScriptedCall) -> dict[str, Any]:
    if "request" in call.fields:
        return {"result": WORDS["verdict"]}
    if "judge" in call.user and WORDS["verdict"] not in call.text:
        return {"reply": "", "calls": [{"tool": "critic", "arguments": {"request": WORDS["request"]}}]}
    if "ask" in call.user and "Red." not in call.text:
        return {"reply": "", "calls": [{"tool": "wait", "arguments": {}}]}
    return {"reply": "Fine.", "calls": []}


@asynccontextmanager
async def opened(home: Path, **more: Any) -> AsyncGenerator[WorldAgent]:
    shapes: list[Shape[Any, Any]] = [
        Shape("work", Nothing, Said, _work),
        Shape("wait", Nothing, Said, _wait, description="Ask."),
    ]
    functions = [look, tool(approval=True)(pay)]
    async with scripted_agent(
        home, ScriptedLM(_reply), workers=[CRITIC], tools=functions, shapes=shapes, **more
    ) as agent:
        yield agent


async def lived(agent: WorldAgent) -> str:
    """Let a thread do all that leaves something behind after its second message, whose id it gives."""
    thread = agent.thread("t1")
    await thread.converse("one")
    await thread.converse(WORDS["message"])
    second = (await thread.history())[2].id
    await thread.converse("judge")
    turn = await thread.task("work", {})
    turn = await thread.resume({turn.pauses[0].id: WORDS["answer"]})
    assert (await thread.resume({turn.pauses[0].id: Approve()})).status == "done"
    return second


async def test_what_the_turns_of_a_kept_branch_did_goes_with_the_branch(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        await thread.edit("two", at=await lived(agent), keep_as="before")
        said = await thread.history()
        for text in WORDS.values():
            assert found(tmp_path / "home", [text]), text
        removed = await agent.upkeep.remove("before")
        assert removed is not None
        assert (removed.messages, removed.turns) == (2 + 4 + 2, 3)
        assert removed.calls >= 4
        assert removed.checkpoints > 3 * 3
        assert found(tmp_path / "home", [*WORDS.values()]) == []
        assert await rows(agent, "wa_call") == 0
        assert await rows(agent, "wa_turn") == 2
        assert await thread.history() == said
        assert [message.body["text"] for message in said] == ["one", "Fine.", "two", "Fine."]
        assert (await thread.converse("three")).status == "done"
        removed = await agent.upkeep.remove("t1")
        assert removed is not None
        assert (removed.messages, removed.turns) == (6, 3)
        for table in ("wa_message", "wa_turn", "checkpoints"):
            assert await rows(agent, table) == 0


async def test_what_a_fork_stands_on_stays_and_the_turns_behind_it_go(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        second = await lived(agent)
        fork = await thread.fork(at=second, to="fork")
        stands = await fork.history()
        await thread.edit("two", at=second, keep_as="before")
        assert await agent.upkeep.remove("before") is not None
        assert found(tmp_path / "home", [text for place, text in WORDS.items() if place != "message"]) == []
        assert await fork.history() == stands
        assert (await fork.replay()).text == "Fine."
        assert await rows(agent, "wa_turn", "thread='novel/t1'") == 2


@pytest.mark.requirement("T5")
async def test_a_turn_that_waits_on_the_edited_thread_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", settings={"checkpoint_keep": 0}) as agent:
        thread = agent.thread("t1")
        turn = await thread.edit("ask", at=await lived(agent), keep_as="before")
        assert turn.status == "paused"
        before = await rows(agent, "checkpoints", "thread_id LIKE 'novel/t1%'")
        removed = await agent.upkeep.remove("before")
        assert removed is not None
        assert found(tmp_path / "home", [*WORDS.values()]) == []
        assert await rows(agent, "checkpoints", "thread_id LIKE 'novel/t1%'") == before - removed.checkpoints
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        assert (await thread.resume({turn.pauses[0].id: "Red."})).text == "Fine."
        assert [message.body.get("text") for message in await thread.history()][:3] == ["one", "Fine.", "ask"]
