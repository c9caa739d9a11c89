"""Edits: a message is said otherwise, the thread goes on from there, and what came of it before is kept (T4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, Thinking, scripted_agent
from support.homes import counting, grown, ids, row_counts, said
from worldagent import Role, Roles, Tier
from worldagent.core.errors import (
    InvalidArgument,
    ModelUnavailable,
    NameTaken,
    RoleSourceUnavailable,
    ThreadBusy,
    ThreadPaused,
    UnknownMessage,
)
from worldagent.core.events import TextDelta, TurnStarted
from worldagent.graphs import Shape, TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")


@pytest.mark.on_every_database
async def test_an_edit_takes_over_the_threads_name_and_keeps_what_was(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("one")
        await thread.converse("two")
        was = await ids(thread)
        before = row_counts(tmp_path)
        turn = await thread.edit("TWO", keep_as="as it was")
        assert (turn.status, turn.text, turn.thread, turn.kept_as) == ("done", "a3", "t1", "as it was")
        assert await said(thread) == ["one", "a1", "TWO", "a3"]
        assert await ids(agent.thread("as it was")) == was
        more = grown(before, row_counts(tmp_path))
        assert (more["wa_message"], more["wa_turn"], more["wa_branch"]) == (2, 1, 2), more
        await thread.converse("three")
        await agent.thread("as it was").converse("four")
    async with scripted_agent(tmp_path, counting()) as agent:
        assert await said(agent.thread("t1")) == ["one", "a1", "TWO", "a3", "three", "a4"]
        assert await said(agent.thread("as it was")) == ["one", "a1", "two", "a2", "four", "a5"]


async def test_what_a_task_or_schedule_said_since_is_not_the_message_that_is_edited(tmp_path: Path) -> None:
    async def job(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text="done")

    async with scripted_agent(tmp_path, counting(), shapes=[Shape("job", Nothing, Said, job)]) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        await thread.task("job", {})
        await thread.edit("ONE", keep_as="kept")
        assert await said(thread) == ["ONE", "a2"]
        assert await said(agent.thread("kept")) == ["one", "a1", "task", "result"]


async def test_what_cannot_be_edited_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1", account="ana")
        await agent.thread("other", account="ana").converse("one")
        foreign = (await ids(agent.thread("other")))[0]
        await thread.converse("one")
        asked, answer = await ids(thread)
        before = row_counts(tmp_path)
        with pytest.raises(UnknownMessage):
            await thread.edit("ONE", at=foreign)
        with pytest.raises(InvalidArgument, match="is of kind 'answer'"):
            await thread.edit("ONE", at=answer)
        with pytest.raises(InvalidArgument, match="was written by another account"):
            await agent.thread("t1", account="bob").edit("ONE", at=asked)
        with pytest.raises(NameTaken, match="the thread 'other' exists already"):
            await thread.edit("ONE", keep_as="other")
        with pytest.raises(InvalidArgument, match=r"keep_as .* is not an id"):
            await thread.edit("ONE", keep_as="\n")
        with pytest.raises(InvalidArgument, match="`text` must be a non-empty string"):
            await thread.edit("")
        assert grown(before, row_counts(tmp_path)) == {}
        with pytest.raises(InvalidArgument, match="thread 'new' has no message of kind message"):
            await agent.thread("new").edit("ONE")
        assert grown(before, row_counts(tmp_path)).keys() <= {"wa_epoch"}
        assert await said(thread) == ["one", "a2"]


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=str(await ctx.calls.ask_person("Which?")))


async def test_a_thread_whose_turn_waits_is_not_edited(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting(), shapes=[Shape("ask", Nothing, Said, _ask)]) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        turn = await thread.task("ask", {})
        before = row_counts(tmp_path)
        with pytest.raises(ThreadPaused, match=turn.pauses[0].id):
            await thread.edit("ONE")
        assert grown(before, row_counts(tmp_path)) == {}
        await thread.resume({turn.pauses[0].id: "red"})
        await thread.edit("ONE")
        assert await said(thread) == ["ONE", "a2"]


@pytest.mark.requirement("R14")
async def test_where_the_role_cannot_be_had_nothing_is_edited(tmp_path: Path) -> None:
    async def down(scope: Any) -> Role | None:
        raise ConnectionError("no")

    async with scripted_agent(tmp_path, counting()) as agent:
        await agent.thread("t1", channel="c1").converse("one")
    async with scripted_agent(tmp_path, counting(), roles=Roles(sources={Tier.CHANNEL: down})) as agent:
        before = row_counts(tmp_path)
        with pytest.raises(RoleSourceUnavailable):
            await agent.thread("t1", channel="c1").edit("ONE")
        with pytest.raises(RoleSourceUnavailable):
            await agent.thread("t1", channel="c1").replay()
        assert grown(before, row_counts(tmp_path)).keys() <= {"wa_epoch"}
        assert await agent.threads(status="forked") == ()


async def test_a_message_whose_turn_failed_can_be_edited(tmp_path: Path) -> None:
    lm = ScriptedLM([TimeoutError("slow"), {"reply": "a1", "calls": []}])
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t1")
        with pytest.raises(ModelUnavailable):
            await thread.converse("one")
        assert (await thread.edit("ONE", keep_as="kept")).text == "a1"
        assert await said(thread) == ["ONE", "a1"]
        assert await said(agent.thread("kept")) == ["one"]


async def test_a_turn_whose_id_is_older_than_an_edit_and_that_runs_after_it_is_not_lost(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1")
        late = thread.stream("late")
        await thread.converse("one")
        await thread.edit("ONE")
        async with late:
            await late.wait()
        assert await said(thread) == ["ONE", "a2", "late", "a3"]
        await thread.edit("LATE")
        assert await said(thread) == ["ONE", "a2", "LATE", "a4"]


@pytest.mark.on_every_database
async def test_edits_at_once_come_one_after_the_other_and_each_keeps_what_was(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent, scripted_agent(tmp_path, counting()) as other:
        await agent.thread("t1").converse("zero")
        edits = [on.thread("t1").edit(text) for on, text in ((agent, "x"), (other, "y"), (agent, "z"))]
        await asyncio.gather(*edits)
        now = (await said(agent.thread("t1")))[0]
        names = [item.thread for item in await agent.threads(status="forked")]
        kept = [(await said(agent.thread(name)))[0] for name in names]
        assert sorted([now, *kept]) == ["x", "y", "z", "zero"]
        assert sorted(names) == ["t1.2", "t1.3", "t1.4"]


async def test_an_edit_is_streamed_and_has_its_own_role(tmp_path: Path) -> None:
    role = Role("lighthouse", "Answer as the keeper of the seventh lighthouse would answer.")

    def reply(call: ScriptedCall) -> Any:
        return {"reply": "so be it" if role.content in call.text else "no", "calls": []}

    async with scripted_agent(tmp_path, ScriptedLM(reply, chunk=3)) as agent:
        thread = agent.thread("t1")
        await thread.converse("one", role=role)
        async with thread.stream_edit("ONE", role=role) as stream:
            events = [event async for event in stream]
        assert stream.turn.text == "so be it"
        assert any(isinstance(event, TextDelta) for event in events)
        [started] = [event for event in events if isinstance(event, TurnStarted)]
        assert (started.thread, [str(tier) for tier in started.role_tiers]) == ("t1", ["call"])
        assert (await thread.edit("One")).text == "no"


async def test_an_edit_beside_an_open_stream_waits_for_its_turn_and_edits_what_that_said(tmp_path: Path) -> None:
    model = Thinking("So be it.")
    hasty = scripted_agent(tmp_path, model.lm, settings={"thread_wait": 0})
    async with scripted_agent(tmp_path, model.lm) as agent, hasty as other:
        async with agent.thread("t1").stream("one") as stream:
            await asyncio.wait_for(model.asked.wait(), 30)
            with pytest.raises(ThreadBusy, match="still has another owner"):
                await other.thread("t1").edit("TWO")
            edit = asyncio.create_task(agent.thread("t1").edit("ONE"))
            model.may.set()
            assert (await stream.wait()).status == "done"
        turn = await edit
        assert await said(agent.thread("t1")) == ["ONE", "So be it."]
        assert await said(agent.thread(turn.kept_as)) == ["one", "So be it."]
