"""Replays: a turn runs again on a thread of its own, which goes on from what stood before it (T4, R13)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Nothing, Said, answering, scripted_agent
from support.homes import counting, grown, ids, row_counts, said
from support.role_hosts import KINDS, StoreKind, stored_agent
from worldagent import Role, Tier
from worldagent.agent import Composed, Trigger
from worldagent.core.errors import InvalidArgument, NameTaken, ParamsInvalid, UnknownMessage, UnknownShape
from worldagent.graphs import Shape, TaskContext

HOUSE = Role("house", "Answer as the keeper of the seventh lighthouse would answer.")
BRIEF = Role("brief", "Answer in two words and no more, whatever the matter may be.")


class What(BaseModel):
    what: str


async def _job(params: What, ctx: TaskContext) -> Said:
    return Said(text=f"did {params.what}")


JOB = Shape("job", What, Said, _job)


@pytest.mark.requirement("T4")
async def test_a_message_is_answered_again_on_a_new_thread(tmp_path: Path) -> None:
    lm = counting()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        for text in ("one", "two", "three"):
            await thread.converse(text)
        past = await ids(thread)
        turn = await thread.replay(past[2])
        assert (turn.status, turn.text, turn.thread) == ("done", "a4", "t1.2")
        replayed = agent.thread(turn.thread, account="ana")
        assert await said(replayed) == ["one", "a1", "two", "a4"]
        assert (await ids(replayed))[:2] == past[:2]
        assert [call.messages[-1] for call in lm.calls][1] == lm.calls[3].messages[-1]
        assert await ids(thread) == past
        assert [message.author for message in await replayed.history()] == ["ana", "agent"] * 2
        newest = await thread.replay(to="again")
        assert (newest.thread, await said(agent.thread("again"))) == (
            "again",
            ["one", "a1", "two", "a2", "three", "a5"],
        )
        first = await thread.replay(past[0])
        assert await said(agent.thread(first.thread)) == ["one", "a6"]
        await agent.thread(first.thread).converse("on")
        assert await said(agent.thread(first.thread)) == ["one", "a6", "on", "a7"]


@pytest.mark.requirement("T4", "T8")
async def test_a_task_a_schedule_and_a_skill_run_again_with_what_they_were_given(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting(), shapes=[JOB], workers=[CRITIC]) as agent:
        thread = agent.thread("t1")
        await thread.task("job", {"what": "this"})
        trigger = Trigger(schedule="daily", fired_at=datetime(2030, 1, 1, tzinfo=UTC), payload={"n": 1})
        await thread.run_scheduled(trigger)
        skill = Composed("Name the page.", params={"worker": "critic"}, name="review")
        await thread.run_skill(skill, {"request": "Judge it."})
        history = await thread.history()
        task, _, schedule, _, skilled, _ = history
        again = await thread.replay(task.id)
        assert again.result == Said(text="did this")
        again = await thread.replay(schedule.id)
        copy, _ = (await agent.thread(again.thread).history())[-2:]
        assert (copy.kind, dict(copy.body)) == ("schedule", dict(schedule.body))
        again = await thread.replay(skilled.id, skill=skill)
        copy, result = (await agent.thread(again.thread).history())[-2:]
        assert (copy.kind, dict(copy.body)) == ("skill", dict(skilled.body))
        assert dict(result.body) == dict(history[-1].body)


@pytest.mark.requirement("T4")
async def test_a_skill_is_needed_again_and_its_prompt_counts(tmp_path: Path) -> None:
    lm = answering()
    skill = Composed(
        "Name the page on which it stands.", params={"worker": "critic", "request": "Judge."}, name="review"
    )
    async with scripted_agent(tmp_path, lm, shapes=[JOB], workers=[CRITIC]) as agent:
        thread = agent.thread("t1")
        await thread.run_skill(skill)
        await thread.converse("one")
        skilled, _, asked, _ = await ids(thread)
        before = row_counts(tmp_path)
        for at, given in ((skilled, None), (skilled, Composed(skill.prompt, shape="job")), (asked, skill)):
            with pytest.raises(InvalidArgument) as refused:
                await thread.replay(at, skill=given)
            assert refused.value.remedy.startswith("pass the skill that the turn began with")
            assert skill.prompt not in str(refused.value)
        assert grown(before, row_counts(tmp_path)) == {}
        assert (await thread.replay(skilled, skill=skill)).status == "done"
        assert skill.prompt in lm.calls[-1].text


@pytest.mark.requirement("T4")
async def test_what_began_no_turn_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        await agent.thread("other").converse("one")
        asked, answer = await ids(thread)
        [foreign, _] = await ids(agent.thread("other"))
        before = row_counts(tmp_path)
        with pytest.raises(InvalidArgument, match="is of kind 'answer'"):
            await thread.replay(answer)
        with pytest.raises(UnknownMessage):
            await thread.replay(foreign)
        with pytest.raises(NameTaken, match="the thread 'other' exists already"):
            await thread.replay(asked, to="other")
        with pytest.raises(InvalidArgument, match="is not an id"):
            await thread.replay(asked, to=" ")
        with pytest.raises(InvalidArgument, match="thread 'new' has no message"):
            await agent.thread("new").replay()
        assert grown(before, row_counts(tmp_path)) == {}


@pytest.mark.requirement("T4")
async def test_a_task_whose_shape_is_gone_or_takes_other_params_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting(), shapes=[JOB]) as agent:
        await agent.thread("t1").task("job", {"what": "this"})
    async with scripted_agent(tmp_path, counting()) as agent:
        with pytest.raises(UnknownShape):
            await agent.thread("t1").replay()

    async def other(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text="other")

    async with scripted_agent(tmp_path, counting(), shapes=[Shape("job", Nothing, Said, other)]) as agent:
        with pytest.raises(ParamsInvalid):
            await agent.thread("t1").replay()
        assert [item.thread for item in await agent.threads()] == ["t1"]


@pytest.mark.requirement("R13", "R8")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_replay_has_the_stored_roles_of_now_and_the_calls_only_if_it_is_given(
    tmp_path: Path, kind: StoreKind
) -> None:
    lm = answering()
    async with stored_agent(kind, tmp_path, lm) as agent:
        thread = agent.thread("t1")
        await thread.converse("one", role=BRIEF)
        await agent.roles.put(Tier.WORKSPACE, HOUSE)
        turn = await thread.replay()
        assert [str(tier) for tier in turn.role_tiers] == ["workspace"]
        assert (HOUSE.content in lm.calls[-1].text, BRIEF.content in lm.calls[-1].text) == (True, False)
        turn = await thread.replay(role=BRIEF)
        assert [str(tier) for tier in turn.role_tiers] == ["workspace", "call"]
        assert BRIEF.content in lm.calls[-1].text


@pytest.mark.on_every_database
@pytest.mark.usefixtures("database_engine")
@pytest.mark.requirement("T4")
async def test_replays_at_once_get_a_thread_each(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent, scripted_agent(tmp_path, counting()) as other:
        await agent.thread("t1").converse("one")
        turns = await asyncio.gather(*(on.thread("t1").replay() for on in (agent, other) for _ in range(4)))
        assert len({turn.thread for turn in turns}) == 8
        assert {(await said(agent.thread(turn.thread)))[0] for turn in turns} == {"one"}


@pytest.mark.requirement("T4")
async def test_a_replay_that_waits_is_resumed_on_its_own_thread(tmp_path: Path) -> None:
    async def ask(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=str(await ctx.calls.ask_person("Which?")))

    async with scripted_agent(tmp_path, counting(), shapes=[Shape("ask", Nothing, Said, ask)]) as agent:
        thread = agent.thread("t1")
        first = await thread.task("ask", {})
        again = await thread.replay()
        assert (first.status, again.status, again.thread) == ("paused", "paused", "t1.2")
        assert first.pauses[0].id != again.pauses[0].id
        other = agent.thread(again.thread)
        assert (await other.resume({again.pauses[0].id: "red"})).result == Said(text="red")
        assert (await thread.resume({first.pauses[0].id: "blue"})).result == Said(text="blue")
