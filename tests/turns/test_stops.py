"""Turns that stop: their agent is drained, or they or a model call take too long; and how they resume (T5)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import ServerError

from support.agents import CRITIC, Muse, Said, Writing, answering, open_pauses, scripted_agent, shape
from support.processes import eventually, others
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent.runtime.work import interruptible
from worldagent.core.errors import AgentClosed, HostError, ModelTimeout, NothingToResume, ThreadPaused, TurnTimeout
from worldagent.core.events import TurnEnded
from worldagent.core.pauses import RunAgain
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("T5")

LIMIT = 30


class Scene(Writing):
    """A shape that writes slowly, then writes once more, and one that asks before; and what was written."""

    def agent(self, home: Path, **more: Any) -> WorldAgent:
        async def job(ctx: TaskContext) -> str:
            return f"{await ctx.call('slow', {'what': 'a'})} {await ctx.call('write', {'what': 'b'})}"

        async def ask(ctx: TaskContext) -> str:
            async def first() -> str:
                return f"{await ctx.calls.ask_person('Now?')} {await ctx.call('slow', {'what': 'a'})}"

            return " ".join(await asyncio.gather(first(), ctx.calls.ask_person("Later?")))

        shapes = [shape(job), shape(ask, "ask")]
        return scripted_agent(home, answering(), tools=self.functions, shapes=shapes, **more)


async def kinds(home: Path) -> list[str]:
    async with Scene().agent(home) as agent:
        return [message.kind for message in await agent.thread("t").history()]


async def test_drain_refuses_a_turn_that_has_not_begun(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def slow(scope: Any) -> Role | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    scene = Scene()
    agent = await scene.agent(
        tmp_path, roles=Roles(sources={Tier.CHANNEL: slow}), settings={"role_timeout": LIMIT}
    ).start()
    tasks = others()
    turn = asyncio.create_task(agent.thread("t", channel="#c").task("job", {}))
    await asyncio.wait_for(asked.wait(), LIMIT)
    await asyncio.wait_for(agent.drain(LIMIT), LIMIT / 2)
    with pytest.raises(AgentClosed, match="before the turn could begin") as caught:
        await turn
    assert caught.value.turn_id is not None
    assert await eventually(lambda: others() <= tasks)
    assert await kinds(tmp_path) == []
    assert scene.done == []


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_drain_refuses_waiting_turns_and_stops_their_owner(tmp_path: Path, elsewhere: bool) -> None:
    scene = Scene()
    owner = await scene.agent(tmp_path).start()
    agent = await Scene().agent(tmp_path).start() if elsewhere else owner
    running = asyncio.create_task(owner.thread("t").task("job", {}))
    await asyncio.wait_for(scene.waits.wait(), LIMIT)
    events: list[Any] = []

    async def streamed() -> None:
        async with agent.thread("t").stream("after you") as stream:
            async for event in stream:
                events.append(event)

    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(streamed()),
        asyncio.create_task(agent.thread("t").converse("and me")),
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    draining = asyncio.create_task(agent.drain(LIMIT))
    for turn in waiting:
        with pytest.raises(AgentClosed):
            await asyncio.wait_for(turn, LIMIT / 2)
    assert isinstance(events[-1], TurnEnded)
    assert (events[-1].status, events[-1].code) == ("failed", "agent_closed")
    assert not running.done()
    scene.go.set()
    assert (await asyncio.wait_for(running, LIMIT)).status == ("done" if elsewhere else "stopped")
    await draining
    await owner.aclose()
    assert await kinds(tmp_path) == (["task", "result"] if elsewhere else ["task"])


@pytest.mark.parametrize("cancelled", [False, True])
async def test_waiting_resume_is_refused_and_its_answer_is_kept(tmp_path: Path, cancelled: bool) -> None:
    scene = Scene()
    async with scene.agent(tmp_path) as owner:
        paused = await owner.thread("t").task("ask", {})
        before, after = sorted(paused.pauses, key=lambda pause: str(pause.question), reverse=True)
        running = asyncio.create_task(owner.thread("t").resume({before.id: "yes"}))
        await asyncio.wait_for(scene.waits.wait(), LIMIT)
        agent = await Scene().agent(tmp_path).start()
        waiting = asyncio.create_task(agent.thread("t").resume({after.id: "no"}))
        async with asyncio.timeout(LIMIT):
            while await open_pauses(owner.thread("t")):  # noqa: ASYNC110 -- what stands in the database sets no event
                await asyncio.sleep(0)
        if cancelled:
            assert await owner.thread("t").cancel()
            with pytest.raises(NothingToResume, match="was cancelled meanwhile; begin a new turn"):
                await waiting
            return await agent.aclose()
        await agent.drain(LIMIT)
        with pytest.raises(AgentClosed):
            await waiting
        scene.go.set()
        assert (await asyncio.wait_for(running, LIMIT)).result == Said(text="yes a no")
    assert scene.done == ["a"]


async def test_own_time_limit_of_a_turn_is_not_taken_for_the_turns() -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with interruptible(RuntimeError):
            raise TimeoutError("mine")


async def test_turn_that_does_not_stop_is_interrupted(tmp_path: Path) -> None:
    scene = Scene()
    agent = await scene.agent(tmp_path).start()
    tasks = others()
    running = asyncio.create_task(agent.thread("t").task("job", {}))
    await asyncio.wait_for(scene.waits.wait(), LIMIT)
    await asyncio.wait_for(agent.drain(0), LIMIT)
    assert (await running).status == "stopped"
    assert await eventually(lambda: others() <= tasks)
    scene.go.set()
    async with scene.agent(tmp_path) as agent:
        thread = agent.thread("t")
        with pytest.raises(ThreadPaused, match="is stopped; resume it, or cancel it"):
            await thread.converse("Hi")
        [pause] = (await thread.resume()).pauses
        assert (pause.kind, pause.function) == ("uncertain", "slow")
        assert (await thread.resume({pause.id: RunAgain()})).result == Said(text="a b")
    assert scene.done == ["a", "b"]


class Limited(Writing):
    """A shape that writes, waits until it may go on, and writes again; and what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()

    def agent(self, home: Path, **settings: Any) -> WorldAgent:
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
            shapes=[shape(plain, "plain"), shape(asking, "ask")],
            clock=self.clock,
            settings={"turn_timeout": 60, **settings},
        )

    async def late(self, seconds: float = 61) -> None:
        """Let the time of the turn that waits here pass."""
        await asyncio.wait_for(self.waits.wait(), LIMIT)
        await self.clock.advance(seconds)


async def test_turn_over_its_time_fails_and_can_be_resumed(tmp_path: Path) -> None:
    scene = Limited()
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
    scene = Limited()
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


@pytest.mark.requirement("T3")
async def test_all_tries_of_a_model_call_share_its_time(tmp_path: Path) -> None:
    tried: list[str] = []

    def reply(call: ScriptedCall) -> Any:
        tried.append(call.user)
        return asyncio.Event().wait() if len(tried) != 2 else ServerError("down")

    settings = {"model_timeout": 0.5, "model_attempts": 5}
    async with scripted_agent(tmp_path, ScriptedLM(reply), settings=settings) as agent:
        for number, tries in enumerate((1, 3)):
            with pytest.raises(ModelTimeout, match=r"within 0\.5 s"):
                await asyncio.wait_for(agent.thread(f"t{number}").converse("Hi"), LIMIT)
            assert len(tried) == tries
