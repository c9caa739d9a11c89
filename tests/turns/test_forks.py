"""Forks, replays and edits: a thread continues from a message of another or of its own; both share the past (T4)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import CRITIC, Nothing, Said, answering, scripted_agent, shape, state_of, streamed, which
from support.homes import branched, counting, grown, ids, row_counts, said
from support.shop import Order
from worldagent import Role, Storage, Tier, WorldAgent
from worldagent.agent import Composed, Settings, Trigger
from worldagent.core.errors import InvalidArgument, NameTaken, ThreadBusy, ThreadPaused, UnknownMessage
from worldagent.core.events import TextDelta, TurnStarted
from worldagent.graphs import Shape, TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[WorldAgent]:
    async with scripted_agent(tmp_path, counting()) as opened:
        yield opened


@pytest.mark.on_every_database
async def test_fork_shares_the_past_and_continues_by_itself(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1", account="ana", channel="c1")
        await thread.converse("one")
        await thread.converse("two")
        before = row_counts(tmp_path)
        fork = await thread.fork(at=(await ids(thread))[1], to="plan b")
        assert grown(before, row_counts(tmp_path)) == {"wa_branch": 1}
        assert fork.scope == agent.thread("plan b", account="ana", channel="c1").scope
        assert await said(fork) == ["one", "a1"]
        assert (await ids(fork)) == (await ids(thread))[:2]
        await fork.converse("three")
        await thread.converse("four")
        assert await said(fork) == ["one", "a1", "three", "a3"]
        assert await said(thread) == ["one", "a1", "two", "a2", "four", "a4"]
        found = await ids(fork)
        assert [message.id for message in await fork.history(before=found[3], limit=2)] == found[1:3]
        with pytest.raises(UnknownMessage):
            await thread.history(before=found[3])
    lm = counting()
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.thread("plan b").converse("five")
        assert await said(agent.thread("plan b")) == ["one", "a1", "three", "a3", "five", "a1"]
    assert "one" in str(lm.calls[0].messages), "the planner does not see the shared past"


async def test_fork_begins_at_the_newest_message_by_default(agent: WorldAgent) -> None:
    thread = agent.thread("t1")
    await thread.converse("one")
    first, second = await thread.fork(), await thread.fork()
    assert [first.scope.thread, second.scope.thread] == ["t1.2", "t1.3"]
    again = await second.fork(at=(await ids(thread))[0])
    assert (again.scope.thread, await said(again)) == ("t1.3.2", ["one"])
    await agent.thread("n" * 200).converse("one")
    assert (await agent.thread("n" * 200).fork()).scope.thread == f"{'n' * 180}.2"


async def test_fork_at_a_foreign_message_is_refused(tmp_path: Path, agent: WorldAgent) -> None:
    one, other = agent.thread("one"), agent.thread("other")
    await one.converse("one")
    await other.converse("one")
    fork = await one.fork(to="fork")
    await fork.converse("two")
    before = row_counts(tmp_path)
    foreign = (await ids(other))[0]
    later = (await ids(fork))[-1]
    for at in (foreign, later, "x" * 5000):
        with pytest.raises(UnknownMessage) as refused:
            await one.fork(at=at, to="new")
        assert len(str(refused.value)) < 300
    with pytest.raises(InvalidArgument, match="thread 't1' has no message"):
        await agent.thread("t1").fork(to="t2")
    assert await agent.thread("t2").state() is None
    assert grown(before, row_counts(tmp_path)) == {}


@pytest.mark.on_every_database
async def test_of_many_forks_at_once_each_gets_a_name_and_a_name_is_given_once(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent, scripted_agent(tmp_path, counting()) as other:
        await agent.thread("t1").converse("one")
        asked = [on.thread("t1").fork() for on in (agent, other) for _ in range(4)]
        names = {fork.scope.thread for fork in await asyncio.gather(*asked)}
        assert len(names) == 8
        wanted = [on.thread("t1").fork(to="b") for on in (agent, other) for _ in range(3)]
        outcomes = await asyncio.gather(*wanted, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert len(refused) == 5
        assert all(isinstance(error, NameTaken | ThreadBusy) for error in refused), refused
        assert await said(agent.thread("b")) == ["one", "a1"]


async def test_fork_of_a_busy_thread_runs_at_once(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def ask(params: Nothing, ctx: TaskContext) -> Said:
        begun.set()
        await go.wait()
        return Said(text=str(await ctx.calls.ask_person("Which?")))

    async with scripted_agent(tmp_path, counting(), shapes=[Shape("ask", Nothing, Said, ask)]) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        running = asyncio.create_task(thread.task("ask", {}))
        await asyncio.wait_for(begun.wait(), 30)
        while_running = await thread.fork()
        go.set()
        paused = await running
        assert paused.status == "paused"
        while_paused = await thread.fork()
        for fork in (while_running, while_paused):
            assert await fork.pauses() == ()
            assert (await fork.converse("on")).status == "done"
        assert await said(while_paused) == ["one", "a1", "task", "on", "a3"]
        assert (await thread.resume({paused.pauses[0].id: "red"})).status == "done"


@pytest.mark.on_every_database
async def test_a_fork_is_listed_until_it_has_a_turn_and_then_as_its_turn(tmp_path: Path) -> None:
    async with (
        scripted_agent(tmp_path, counting()) as agent,
        WorldAgent("other", lm=answering(), storage=Storage(home=tmp_path), settings=Settings()) as elsewhere,
    ):
        await elsewhere.thread("t0").converse("one")
        await agent.thread("t1").converse("one")
        await agent.thread("t1").fork(to="50% of / it")
        await agent.thread("t2").converse("two")
        fork = agent.thread("50% of / it")
        state = await state_of(fork)
        assert (state.thread, state.status, state.turn_id, state.kind) == ("50% of / it", "forked", "", None)
        assert not state.resumable
        assert [item.thread for item in await agent.threads()] == ["t2", "50% of / it", "t1"]
        assert [item.thread for item in await agent.threads(limit=2)] == ["t2", "50% of / it"]
        assert await agent.threads(status="forked") == (state,)
        assert {item.thread for item in await agent.threads(status="done")} == {"t1", "t2"}
        assert [item.thread for item in await elsewhere.threads()] == ["t0"]
        assert await elsewhere.threads(status="forked") == ()
        await fork.converse("three")
        assert await agent.threads(status="forked") == ()
        assert [(item.thread, item.status) for item in await agent.threads(limit=1)] == [("50% of / it", "done")]


HOUSE = Role("house", "Answer as the keeper of the seventh lighthouse would answer.")
BRIEF = Role("brief", "Answer in two words and no more, whatever the matter may be.")


async def _job(params: Order, ctx: TaskContext) -> Said:
    return Said(text=f"did {params.what}")


JOB = Shape("job", Order, Said, _job)


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


@pytest.mark.requirement("T8")
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


@pytest.mark.requirement("R13", "R8")
async def test_a_replay_has_the_stored_roles_of_now_and_the_calls_only_if_it_is_given(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
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


async def test_invalid_replay_or_edit_is_refused_and_nothing_is_written(tmp_path: Path, agent: WorldAgent) -> None:
    thread, other = agent.thread("t1", account="ana"), agent.thread("other", account="ana")
    await other.converse("one")
    await thread.converse("one")
    foreign, (asked, answer) = (await ids(other))[0], await ids(thread)
    wrong: list[tuple[Callable[[], Awaitable[object]], type[Exception], str]] = [
        (lambda: thread.replay(answer), InvalidArgument, "is of kind 'answer'"),
        (lambda: thread.replay(foreign), UnknownMessage, "use an id"),
        (lambda: thread.replay(asked, to="other"), NameTaken, "the thread 'other' exists already"),
        (lambda: agent.thread("new").replay(), InvalidArgument, "thread 'new' has no message"),
        (lambda: thread.edit("ONE", at=answer), InvalidArgument, "is of kind 'answer'"),
        (lambda: thread.edit("ONE", at=foreign), UnknownMessage, "use an id"),
        (lambda: thread.edit("ONE", keep_as="other"), NameTaken, "the thread 'other' exists already"),
        (
            lambda: agent.thread("t1", account="bob").edit("ONE", at=asked),
            InvalidArgument,
            "was written by another account",
        ),
    ]
    before = row_counts(tmp_path)
    for attempt, error, says in wrong:
        with pytest.raises(error, match=says):
            await attempt()
    assert grown(before, row_counts(tmp_path)) == {}
    with pytest.raises(InvalidArgument, match="thread 'new' has no message of kind message"):
        await agent.thread("new").edit("ONE")
    assert grown(before, row_counts(tmp_path)).keys() <= {"wa_epoch"}
    assert await said(thread) == ["one", "a2"]


async def test_branch_that_loses_a_race_is_refused(agent: WorldAgent) -> None:
    await agent.thread("t1").converse("one")
    await agent.thread("t1").fork(to="t2")
    with pytest.raises(NameTaken, match="the thread 'novel/t2' exists already"):
        await branched(agent, "t2", (await ids(agent.thread("t1")))[0])
    with pytest.raises(UnknownMessage, match="message 'gone' was just removed"):
        await branched(agent, "t3", "gone")


async def test_a_thread_whose_turn_waits_is_not_edited(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting(), shapes=[shape(which, "ask")]) as agent:
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


async def test_a_turn_whose_id_is_older_than_an_edit_and_that_runs_after_it_is_not_lost(agent: WorldAgent) -> None:
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
        turn, events = await streamed(thread.stream_edit("ONE", role=role))
        assert turn.text == "so be it"
        assert any(isinstance(event, TextDelta) for event in events)
        [started] = [event for event in events if isinstance(event, TurnStarted)]
        assert (started.thread, [str(tier) for tier in started.role_tiers]) == ("t1", ["call"])
        assert (await thread.edit("One")).text == "no"
