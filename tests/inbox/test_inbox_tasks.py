"""Messages to turns that are a task of a worker or a skill, to workers of a conversation, and to code (T15)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, Thinking, approving, scripted_agent
from support.inbox import ended, texts
from support.skill_turns import package
from worldagent import Approve, Policy, Worker, WorldAgent, tool
from worldagent.agent import Skill, Task, Thread
from worldagent.core import events as ev
from worldagent.core.errors import NotSteerable
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T15")

Asked = Task | Skill
TASK = Task("subagent", {"worker": "clerk", "request": "Do it."})
SKILL = Skill("tea", {"request": "Do it."})


class Office:
    """A clerk, and a skill, that paint twice and then ask a person; each call of `paint` waits for the test.

    Attributes:
        painting: Has an item for each call of `paint` that has begun.
        may: Lets one call end for each permit.
        lm: The model; a conversation has the clerk do it.
    """

    def __init__(self, home: Path, *steps: str) -> None:
        self.home, self.steps = home, steps or ("paint", "paint")
        self.painting = asyncio.Queue[None]()
        self.may = asyncio.Semaphore(0)
        self.lm = ScriptedLM(self._reply, form="native")
        package(home)

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        steps: tuple[tuple[str, dict[str, Any]], ...] = tuple((name, {}) for name in self.steps)
        if "You are the agent" in call.system or "message" in call.fields:
            steps = (("clerk", {"request": "Do it."}),)
        made = sum(not step.startswith("While you worked") for step in call.steps)
        calls = [{"tool": name, "arguments": arguments} for name, arguments in steps[made : made + 1]]
        field = "result" if "request" in call.fields and "skill name" not in call.system else "reply"
        return {field: "" if calls else "Done.", "calls": calls}

    def _functions(self) -> list[Function]:
        async def paint() -> str:
            self.painting.put_nowait(None)
            await self.may.acquire()
            return "painted"

        async def check() -> str:
            return "checked"

        return [tool(risk="write")(paint), tool(risk="read_only", approval=True)(check)]

    def agent(self, **more: Any) -> WorldAgent:
        return scripted_agent(
            self.home / "home",
            self.lm,
            tools=self._functions(),
            workers=[Worker("clerk", "You do it.", "does it", tools=("paint", "check"))],
            skills=[self.home / "skills"],
            policy=Policy(rules=(approving("paint", "clerk"),)),
            **more,
        )

    async def begun(self, thread: Thread, request: Asked) -> "asyncio.Task[Any]":
        turn = asyncio.ensure_future(thread.run(request))
        await asyncio.wait_for(self.painting.get(), 20)
        return turn


def read_of(call: ScriptedCall) -> list[str]:
    """The messages that a call of the model has, in order."""
    return [step.partition("\n")[2] for step in call.steps if step.startswith("While you worked")]


@pytest.mark.parametrize("asked", [TASK, SKILL], ids=["task", "skill"])
async def test_turn_of_a_worker_or_a_skill_reads_messages_between_its_steps(tmp_path: Path, asked: Asked) -> None:
    office = Office(tmp_path)
    async with office.agent() as agent:
        thread = agent.thread("t", account="ana")
        turn = await office.begun(thread, asked)
        await thread.steer("in blue")
        await thread.steer("and fast")
        office.may.release()
        await asyncio.wait_for(office.painting.get(), 20)
        await thread.steer("but well")
        office.may.release()
        assert (await turn).status == "done"
        assert [read_of(call) for call in office.lm.calls] == [
            [],
            ["in blue", "and fast"],
            ["in blue", "and fast", "but well"],
        ]
        kinds = [each.kind for each in await thread.history()]
        assert kinds == [("task" if asked is TASK else "skill"), "word", "word", "word", "result"]
        assert await thread.queued() == ()
        await ended(thread)


@pytest.mark.parametrize("asked", [TASK, SKILL], ids=["task", "skill"])
async def test_turn_of_a_worker_or_a_skill_reads_the_same_after_it_waited(tmp_path: Path, asked: Asked) -> None:
    office = Office(tmp_path, "paint", "check", "paint")
    async with office.agent() as agent:
        thread = agent.thread("t", account="ana")
        turn = await office.begun(thread, asked)
        await thread.steer("in blue")
        office.may.release()
        assert (await turn).status == "paused"
        await thread.steer("and fast")
    async with office.agent() as agent:
        thread = agent.thread("t", account="ana")
        office.may.release()
        again = await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
        assert again.status == "done"
        await ended(thread)
        assert [read_of(call) for call in office.lm.calls] == [[], ["in blue"], *[["in blue", "and fast"]] * 2]
        steps = office.lm.calls[-1].steps
        assert [step.startswith("While you worked") for step in steps] == [False, True, False, True, False]
        assert [text for kind, text in await texts(thread) if kind == "word"] == ["in blue", "and fast"]


async def test_interrupted_turn_of_a_worker_ends_after_its_call(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with office.agent() as agent:
        thread = agent.thread("t", account="ana")
        turn = await office.begun(thread, TASK)
        await thread.steer("in blue")
        await thread.queue(TASK, interrupt=True)
        office.may.release()
        assert (await turn).status == "cancelled"
        for _ in range(2):
            await asyncio.wait_for(office.painting.get(), 20)
            office.may.release()
        await ended(thread)
        assert [each.kind for each in await thread.history()].count("task") == 2


async def test_interrupted_turn_of_a_worker_ends_at_once_while_its_model_thinks(tmp_path: Path) -> None:
    thinking = Thinking()
    clerk = Worker("clerk", "You do it.", "does it")
    async with scripted_agent(tmp_path, thinking.lm, workers=[clerk]) as agent:
        thread = agent.thread("t")
        turn = asyncio.ensure_future(thread.run(TASK))
        await asyncio.wait_for(thinking.asked.wait(), 20)
        await thread.queue("stop", interrupt=True)
        assert (await asyncio.wait_for(turn, 20)).status == "cancelled"
        thinking.may.set()
        await ended(thread)
        assert await texts(thread) == [("message", "stop"), ("answer", "Fine.")]


async def test_worker_of_a_conversation_reads_nothing_and_the_conversation_does(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with office.agent() as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("Do it.") as stream:
            await asyncio.wait_for(office.painting.get(), 20)
            word = await thread.steer("in blue")
            for _ in range(2):
                office.may.release()
            events = [event async for event in stream]
        assert [event.id for event in events if isinstance(event, ev.MessageTaken)] == [word.id]
        [*below, last] = office.lm.calls
        assert [read_of(call) for call in below] == [[]] * len(below)
        assert read_of(last) == ["in blue"]
        assert [kind for kind, _ in await texts(thread)] == ["message", "word", "answer"]


async def test_turn_of_code_cannot_be_steered(tmp_path: Path) -> None:
    running, may = asyncio.Event(), asyncio.Event()

    async def handle(params: Nothing, ctx: TaskContext) -> Said:
        running.set()
        await may.wait()
        return Said(text="done")

    job: Shape[Any, Any] = Shape("job", Nothing, Said, handle)
    lm = ScriptedLM(lambda _: {"reply": "Fine."})
    async with scripted_agent(tmp_path, lm, shapes=[job]) as agent:
        thread = agent.thread("t")
        turn = asyncio.ensure_future(thread.task("job", {}))
        await asyncio.wait_for(running.wait(), 20)
        for begin in (False, True):
            with pytest.raises(NotSteerable, match="queue"):
                await thread.steer("in blue", begin=begin)
        await thread.queue("in red")
        may.set()
        await turn
        await ended(thread)
        assert await texts(thread) == [("message", "in red"), ("answer", "Fine.")]
