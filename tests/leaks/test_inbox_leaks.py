"""Roles of turns that messages steer, of messages that are queued under them, and of interrupted turns are nowhere."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.inbox import ended
from support.leaks import Watch, canary, watch
from worldagent import Approve, Role, Settings, Storage, WorldAgent, tool
from worldagent.agent import Say, Task, Thread
from worldagent.core.errors import NothingToResume, NotSteerable
from worldagent.harness import Function, Policy, Worker
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("R7", "R9", "R13", "T15", "T16")

on_both = pytest.mark.parametrize("database_engine", ["sqlite", "postgres"], indirect=True)


class Painter:
    """An agent that paints, once it may, asks a person, and answers.

    Attributes:
        begun: Set once it paints.
        may: Lets it end.
        lm: Its model, which keeps what it was sent.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.lm = home, ScriptedLM(self._reply)
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    def functions(self) -> list[Function]:
        async def paint() -> str:
            self.begun.set()
            await self.may.wait()
            return "painted"

        async def hang() -> str:
            return "hung"

        return [tool(risk="write")(paint), tool(risk="write", approval=True)(hang)]

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        made = sum(not step.startswith("While you worked") for step in call.steps)
        calls = [{"tool": name, "arguments": {}} for name in ("paint", "hang")[made : made + 1]]
        field = "result" if "request" in call.fields else "reply"
        return {field: "" if calls else "Done.", "calls": calls if "Paint." in call.user else []}

    def agent(self) -> WorldAgent:
        return WorldAgent(
            "novel",
            lm=self.lm,
            tools=self.functions(),
            workers=[Worker("clerk", "You paint.", "paints", tools=("paint", "hang"))],
            policy=Policy(rules=(Rule(decision="approve", function="paint"),)),
            storage=Storage(home=self.home),
            settings=Settings(model_attempts=1, model_backoff=0),
        )

    def reached(self, *texts: str) -> bool:
        """Whether each of the texts was sent to the model, so that the case shows something."""
        return all(any(text in call.text for call in self.lm.calls) for text in texts)


async def answered(thread: Thread, role: Role | None, seen: Watch) -> None:
    """Approve what the thread's turn waits for, and wait for its end."""
    answers = {pause.id: Approve() for pause in await thread.pauses()}
    await seen.outcome(thread.resume(answers, role=role))
    await ended(thread)


@on_both
@pytest.mark.parametrize("surface", ["message", "task"])
async def test_role_of_a_steered_turn_is_nowhere(tmp_path: Path, database_engine: str, surface: str) -> None:
    text, other = canary(400, "steered"), canary(300, "tr")
    role = Role("steered critic", text)
    with watch(tmp_path / "home") as seen:
        painter = Painter(seen.home)
        async with painter.agent() as agent:
            thread = agent.thread("t", account="ana")
            thread.role.set(Role("steered painter", other))
            asked = Say("Paint.", role=role) if surface == "message" else Task("subagent", TASK, role=role)
            turn = asyncio.ensure_future(seen.outcome(thread.run(asked)))
            await asyncio.wait_for(painter.begun.wait(), 20)
            await seen.outcome(thread.steer("in blue"))
            await seen.outcome(agent.thread("t", account="eve").steer("in red"))
            assert isinstance(seen.errors[-1], NotSteerable)
            painter.may.set()
            assert (await turn).status == "paused"
            await seen.outcome(thread.steer("and hang it"))
            seen.assert_clean(text, other)
            await answered(thread, role, seen)
            await seen.outcome(thread.queued())
            kinds = [message.kind for message in await thread.history()]
            assert kinds.count("word") == 2, kinds
            assert painter.reached(text)
        seen.assert_clean(text, other, names=["steered critic", "steered painter"])


TASK = {"worker": "clerk", "request": "Paint."}


@on_both
async def test_roles_of_queued_messages_are_nowhere(tmp_path: Path, database_engine: str) -> None:
    text, other, late = canary(400, "call"), canary(300, "tr"), canary(200, "late")
    with watch(tmp_path / "home") as seen:
        painter = Painter(seen.home)
        async with painter.agent() as agent:
            thread = agent.thread("t")
            thread.role.set(Role("painter", other))
            turn = asyncio.ensure_future(seen.outcome(thread.converse("Paint.")))
            await asyncio.wait_for(painter.begun.wait(), 20)
            first = await thread.queue(Say("nothing, 1", role=Role("critic", text)))
            await seen.outcome(thread.queue("nothing, 2", role=Role("critic", text)))
            await seen.outcome(thread.queue("nothing, 3"))
            await seen.outcome(thread.queue("nothing, 4", role=None))
            await seen.outcome(thread.queued())
            seen.assert_clean(text, other)
        await seen.outcome(turn)
        async with painter.agent() as agent:  # it has none of the roles
            thread = agent.thread("t")
            await ended(thread)
            assert [each.waits_for for each in await thread.queued()] == ["role", "role", "role", "turn"]
            await seen.outcome(thread.release(first.id, role=Role("critic", late)))
            await ended(thread)
            assert len(await thread.queued()) == 3
            for each in await thread.queued():
                await seen.outcome(thread.release(each.id))
            await ended(thread)
            assert await thread.queued() == ()
            assert painter.reached(late)
            seen.assert_clean(text, other, late)
        seen.assert_clean(text, other, late)


@on_both
async def test_role_of_an_interrupted_turn_is_nowhere(tmp_path: Path, database_engine: str) -> None:
    text, next_one = canary(400, "interrupted"), canary(300, "interrupting")
    with watch(tmp_path / "home") as seen:
        painter = Painter(seen.home)
        async with painter.agent() as agent:
            thread = agent.thread("t")
            turn = asyncio.ensure_future(seen.outcome(thread.converse("Paint.", role=Role("critic", text))))
            await asyncio.wait_for(painter.begun.wait(), 20)
            await seen.outcome(thread.steer("in blue"))  # which the turn does not read, so it begins the next one
            item = await thread.queue(Say("nothing now", role=Role("judge", next_one)), interrupt=True)
            seen.assert_clean(text, next_one)
            painter.may.set()
            assert (await turn).status == "cancelled"
            await ended(thread)
            with pytest.raises(NothingToResume):
                await thread.resume({})
            assert item.id not in [each.id for each in await thread.queued()]
            assert painter.reached(text, next_one)
            seen.assert_clean(text, next_one)
        seen.assert_clean(text, next_one)
