"""Each message of an inbox is read once, whatever ends the turn that it meets (T15, T16)."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, Thinking, scripted_agent
from support.inbox import Painting, ended, texts
from worldagent import Role
from worldagent.agent import Say, Task, Thread
from worldagent.core.errors import KeyReused, ModelUnavailable, TaskFailed
from worldagent.graphs import Shape, TaskContext
from worldagent.hosts.service.inbox import begun
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T15", "T16")

PIRATE = Role("pirate", "Talk like a pirate.")


class Turns:
    """A model whose turns wait for the test, each for its own event, by the text of the message that began it."""

    def __init__(self, *held: str) -> None:
        self.asked = {text: asyncio.Event() for text in held}
        self.may = {text: asyncio.Event() for text in held}
        self.read: list[str] = []
        self.lm = ScriptedLM(self._reply)

    async def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        self.read.append("\n".join(str(message) for message in call.messages))
        text = str(call.fields["message"])
        if text in self.asked:
            self.asked[text].set()
            await self.may[text].wait()
        return {"reply": f"Answer to {text}."}


async def said(thread: Thread) -> list[str]:
    return [text for kind, text in await texts(thread) if kind in ("message", "word")]


async def test_message_that_another_turn_reads_begins_none(tmp_path: Path) -> None:
    turns = Turns("1")
    async with scripted_agent(tmp_path, turns.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(turns.asked["1"].wait(), 20)
            await thread.steer("left over")
            second = asyncio.ensure_future(thread.converse("2"))  # waits for the thread, and is the next to own it
            await asyncio.sleep(0)
            await thread.queue("3")
            turns.may["1"].set()
            await stream.wait()
        await second
        await ended(thread)
        assert sorted(await said(thread)) == ["1", "2", "3", "left over"]
        assert await thread.queued() == ()


async def test_message_that_is_withdrawn_while_its_turn_waits_for_the_thread_begins_none(tmp_path: Path) -> None:
    turns = Turns("1", "2")
    async with scripted_agent(tmp_path, turns.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(turns.asked["1"].wait(), 20)
            second = asyncio.ensure_future(thread.converse("2"))
            await asyncio.sleep(0)
            item, other = await thread.queue("3"), await thread.queue("4")
            turns.may["1"].set()
            await stream.wait()
        await asyncio.wait_for(turns.asked["2"].wait(), 20)
        assert await thread.withdraw(item.id)
        first = await thread.queue("5", interrupt=True)
        assert (await second).status == "cancelled"
        await ended(thread)
        assert await said(thread) == ["1", "2", "5", "4"]
        assert len({item.id, other.id, first.id}) == 3


@pytest.mark.parametrize("end", ["cancel", "interrupt", "fail"])
async def test_message_that_an_ended_turn_read_stays_in_the_conversation(tmp_path: Path, end: str) -> None:
    painting, thinking, may = Painting(), asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        told = "\n".join(str(message) for message in call.messages)
        read.append(told)
        if "painted door" not in told:
            return {"reply": "", "calls": [{"tool": "paint", "arguments": {"thing": "door"}}]}
        if len(read) == 2:
            thinking.set()
            await may.wait()
            raise ModelUnavailable("the service is down", remedy="try again")
        return {"reply": "Fine."}

    read: list[str] = []
    painting.lm = ScriptedLM(reply)
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        first = asyncio.ensure_future(thread.converse("Paint the door."))
        await asyncio.wait_for(painting.begun.wait(), 20)
        await thread.steer("rather in blue")
        painting.may.set()
        await asyncio.wait_for(thinking.wait(), 20)
        assert "rather in blue" in read[1]
        if end == "cancel":
            await thread.cancel()
            assert (await first).status == "cancelled"
        elif end == "interrupt":
            await thread.converse("stop", interrupt=True)
            assert (await first).status == "cancelled"
        else:
            may.set()
            with pytest.raises(ModelUnavailable):
                await first
        assert ("word", "rather in blue") in await texts(thread)
        await thread.converse("And now?")
        assert await said(thread) == [
            "Paint the door.",
            "rather in blue",
            *(["stop"] if end == "interrupt" else []),
            "And now?",
        ]
        assert read[-1].index("painted door") < read[-1].index("rather in blue") < read[-1].index("And now?")


async def test_task_that_fails_with_an_error_of_its_own_leaves_the_next_one(tmp_path: Path) -> None:
    async def broken(params: Nothing, ctx: TaskContext) -> Said:
        raise ValueError("a mistake of the host's")

    job: Shape[Any, Any] = Shape("job", Nothing, Said, broken)
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm, shapes=[job]) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            await thread.queue(Task("job", {}))
            await thread.queue("2")
            model.may.set()
            await stream.wait()
        await ended(thread)
        assert await said(thread) == ["1", "2"]


async def test_message_to_a_thread_whose_turn_failed_begins_the_next_turn(tmp_path: Path) -> None:
    async def broken(params: Nothing, ctx: TaskContext) -> Said:
        raise ValueError("a mistake of the host's")

    job: Shape[Any, Any] = Shape("job", Nothing, Said, broken)
    async with scripted_agent(tmp_path, ScriptedLM(lambda _: {"reply": "Fine."}), shapes=[job]) as agent:
        thread = agent.thread("t")
        with pytest.raises(TaskFailed, match="ValueError"):
            await thread.task("job", {})
        await thread.steer("2", begin=True)
        await ended(thread)
        assert await said(thread) == ["2"]


async def test_message_that_interrupts_a_waiting_turn_begins_at_once(tmp_path: Path) -> None:
    painting = Painting()
    painting.may.set()
    async with scripted_agent(tmp_path, painting.lm, tools=[painting.tool]) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("Paint the door.")).status == "paused"
        await ended(thread)
        item = await thread.queue("no, sing", interrupt=True)
        await ended(thread)
        assert (await said(thread))[:2] == ["Paint the door.", "no, sing"]
        assert item.id not in [each.id for each in await thread.queued()]


async def test_turn_that_begins_reads_what_came_after_a_failure(tmp_path: Path) -> None:
    """A turn that is not recorded learns of unread messages before its first thought, too."""
    calls: list[str] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        calls.append("\n".join(str(message) for message in call.messages))
        if len(calls) == 1:
            raise ModelUnavailable("the service is down", remedy="try again")
        return {"reply": "Fine."}

    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        thread = agent.thread("t")
        with pytest.raises(ModelUnavailable):
            await thread.converse("1")
        await thread.steer("2", begin=True)
        await ended(thread)
        assert await said(thread) == ["1"]  # the turn can still be resumed
        await thread.converse("3")
        assert "2" in calls[-1]
        assert await said(thread) == ["1", "3", "2"]
        await ended(thread)
        assert len(calls) == 2


async def test_repeat_with_a_key_is_the_same_message_after_its_turn(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            word = await thread.steer("2", key="a")
            model.may.set()
            await stream.wait()
        await ended(thread)
        again = await thread.steer("2", key="a")
        assert (again.id, again.turn_id is None) == (word.id, False)
        await agent.thread("t", account="eve").converse("3")
        assert (await thread.steer("2", key="a")).id == word.id
        assert await said(thread) == ["1", "2", "3"]


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("end", ["done", "paused", "removed"])
async def test_call_role_of_a_message_is_forgotten_with_its_turn(tmp_path: Path, end: str) -> None:
    painting, model = Painting(), Thinking()
    lm = painting.lm if end == "paused" else model.lm
    async with scripted_agent(tmp_path, lm, tools=[painting.tool]) as agent:
        thread = agent.thread("t")
        await thread.queue(Say("1", role=PIRATE))
        kept = await thread.queue(Say("2", role=PIRATE))
        if end != "paused":
            await asyncio.wait_for(model.asked.wait(), 20)
        await thread.withdraw(kept.id)
        if end == "removed":
            await agent.upkeep.remove("t", cancel=True)
        model.may.set()
        await ended(thread)
        assert thread._runner.pending._call_roles == {}


@pytest.mark.parametrize("kind", ["steer", "queue"])
async def test_key_of_another_message_is_refused_and_nothing_is_lost(tmp_path: Path, kind: str) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            put = getattr(thread, kind)
            first = await put("2", key="a")
            assert (await put("2", key="a")).id == first.id
            with pytest.raises(KeyReused, match="'a' was used on this thread"):
                await put("3", key="a")
            if kind == "queue":
                with pytest.raises(KeyReused):
                    await agent.thread("t", account="eve").queue("2", key="a")
            assert [each.text for each in await thread.queued()] == ["2"]
            model.may.set()
            await stream.wait()
        await ended(thread)
        with pytest.raises(KeyReused):  # after it was read, too
            await put("3", key="a")
        assert await said(thread) == ["1", "2"]


async def test_repeat_of_an_interrupting_message_does_not_end_the_turn_that_it_began(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t")
        first = await thread.queue("Paint the door.", key="a", interrupt=True)
        await asyncio.wait_for(painting.begun.wait(), 20)
        again = await thread.queue("Paint the door.", key="a", interrupt=True)
        assert again.id == first.id
        painting.may.set()
        await ended(thread)
        assert again.turn_id is not None
        state = await agent.turn(again.turn_id)
        assert state is not None
        assert state.status == "done"


async def test_repeat_and_a_withdrawal_on_another_thread_leave_a_message_its_role(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            item = await thread.queue("2", role=Role("brief", "Be terse."), key="a")
            assert not await agent.thread("other").withdraw(item.id)
            again = await thread.queue("2", role=Role("long", "Be verbose."), key="a")
            assert (again.id, again.waits_for) == (item.id, "turn")
            model.may.set()
            await stream.wait()
        await ended(thread)
        assert [call.role for call in model.lm.calls] == [None, "Be terse."]


async def test_turn_of_a_message_that_cannot_resume_waits_for_the_next_look(tmp_path: Path) -> None:
    running = asyncio.Event()

    async def endless(params: Nothing, ctx: TaskContext) -> Said:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    job: Shape[Any, Any] = Shape("job", Nothing, Said, endless)
    lm = ScriptedLM(lambda _: {"reply": "Fine."})
    async with scripted_agent(tmp_path, lm, shapes=[job]) as agent:
        await agent.thread("t").queue(Task("job", {}))
        await asyncio.wait_for(running.wait(), 20)
    async with scripted_agent(tmp_path, lm) as agent:  # without the shape of the turn that was stopped
        thread = agent.thread("t")
        await thread.queue("2")
        await ended(thread)
        state = await thread.state()
        assert state is not None
        assert state.status == "stopped"
        assert [each.text for each in await thread.queued()] == ["2"]


async def test_nobody_waits_for_a_message_behind_a_turn_whose_process_was_killed(tmp_path: Path) -> None:
    painting = Painting()
    async with scripted_agent(tmp_path, painting.lm, tools=[painting.tool]) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("Paint the door.")).status == "paused"
        with closing(sqlite3.connect(agent.storage.database)) as connection, connection:
            connection.execute("UPDATE wa_turn SET status='running'")
        item = await thread.queue("2")
        assert await asyncio.wait_for(begun(thread, [item.id], set()), 20) is None
        await ended(thread)
        assert [each.id for each in await thread.queued()] == [item.id]
