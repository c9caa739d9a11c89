"""How long a turn and a model call may take, what becomes of one that takes longer, and how it goes on (T5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Muse, Said, Writing, answering, scripted_agent, shape
from support.processes import eventually, others
from worldagent import WorldAgent
from worldagent.core.errors import HostError, ModelTimeout, TurnTimeout
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("T5")

LIMIT = 30


class Scene(Writing):
    """A shape that writes, waits until it may go on, and writes again; and what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()

    def agent(self, home: Path, **settings: Any) -> WorldAgent:
        async def job(ctx: TaskContext) -> str:
            return f"{await ctx.call('write', {'what': 'a'})} {await ctx.call('slow', {'what': 'b'})}"

        async def plain(ctx: TaskContext) -> str:
            first = await ctx.call("write", {"what": "a"})
            await self.held()
            return f"{first} {await ctx.call('write', {'what': 'b'})}"

        async def asking(ctx: TaskContext) -> str:
            await plain(ctx)
            return await ctx.calls.ask_person("Go on?")

        return scripted_agent(
            home,
            answering(),
            tools=self.functions,
            shapes=[shape(job), shape(plain, "plain"), shape(asking, "ask")],
            clock=self.clock,
            settings={"turn_timeout": 60, **settings},
        )

    async def late(self, seconds: float = 61) -> None:
        """Let the time of the turn that waits here pass."""
        await asyncio.wait_for(self.waits.wait(), LIMIT)
        await self.clock.advance(seconds)


async def test_a_turn_over_its_time_fails_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    scene = Scene()
    async with scene.agent(tmp_path) as agent:
        tasks = others()
        thread = agent.thread("t")
        running = asyncio.create_task(thread.task("plain", {}))
        await scene.late(59)
        assert not running.done()
        await scene.late(2)
        with pytest.raises(TurnTimeout, match="longer than 60 s; resume the turn") as caught:
            await asyncio.wait_for(running, LIMIT)
        assert isinstance(caught.value, HostError)
        assert caught.value.retryable
        assert caught.value.turn_id is not None
        assert scene.done == ["a"]
        assert await eventually(lambda: others() <= tasks), asyncio.all_tasks()
        scene.go.set()
        turn = await thread.resume()
        assert (turn.id, turn.status, turn.result) == (caught.value.turn_id, "done", Said(text="a b"))
    assert scene.done == ["a", "b"]


async def test_time_that_a_turn_is_paused_does_not_count_and_each_run_has_the_whole_limit(tmp_path: Path) -> None:
    scene = Scene()
    async with scene.agent(tmp_path) as agent:
        thread = agent.thread("t")
        running = asyncio.create_task(thread.task("ask", {}))
        await scene.late(40)
        scene.go.set()
        [pause] = (await asyncio.wait_for(running, LIMIT)).pauses
        await scene.clock.advance(1000)
        scene.go.clear()
        scene.waits.clear()
        running = asyncio.create_task(thread.resume({pause.id: "yes"}))
        await scene.late(40)
        scene.go.set()
        assert (await asyncio.wait_for(running, LIMIT)).result == Said(text="yes")
    assert scene.done == ["a", "b"]


@pytest.mark.parametrize("where", ["judge", "ask"])
async def test_the_time_limit_of_a_model_call_holds_below_a_handler(tmp_path: Path, where: str) -> None:
    silent = True

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if silent:
            await asyncio.Event().wait()
        return {"result": "Fine."} if "request" in call.fields else {"thought": "Fine."}

    async def judge(ctx: TaskContext) -> str:
        return str((await ctx.predict(Muse, about="x"))["thought"])

    async def ask(ctx: TaskContext) -> str:
        return str((await ctx.task("subagent", {"worker": "critic", "request": "x"})).text)

    shapes = [shape(judge, "judge", entry=Muse), shape(ask, "ask")]
    settings = {"model_timeout": 0.1}
    async with scripted_agent(tmp_path, ScriptedLM(reply), shapes=shapes, workers=[CRITIC], settings=settings) as agent:
        thread = agent.thread("t")
        with pytest.raises(ModelTimeout, match=r"within 0\.1 s"):
            await asyncio.wait_for(thread.task(where, {}), LIMIT)
        silent = False
        assert (await thread.resume()).result == Said(text="Fine.")
