"""Forks: a thread goes on from a message of another one, and both share what stands before it (T4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.agents import Nothing, Said, answering, scripted_agent
from support.homes import counting, grown, ids, row_counts, said
from worldagent import Role, Storage, WorldAgent
from worldagent.agent import Settings
from worldagent.core.errors import InvalidArgument, NameTaken, ThreadBusy, UnknownMessage
from worldagent.graphs import Shape, TaskContext

pytestmark = pytest.mark.requirement("T4")


@pytest.mark.on_every_database
async def test_a_fork_shares_the_past_and_both_go_on_by_themselves(tmp_path: Path) -> None:
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


async def test_a_fork_without_a_message_goes_on_from_the_newest_and_gets_a_name(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        first, second = await thread.fork(), await thread.fork()
        assert [first.scope.thread, second.scope.thread] == ["t1.2", "t1.3"]
        again = await second.fork(at=(await ids(thread))[0])
        assert (again.scope.thread, await said(again)) == ("t1.3.2", ["one"])
        await agent.thread("n" * 200).converse("one")
        assert (await agent.thread("n" * 200).fork()).scope.thread == f"{'n' * 180}.2"


async def test_a_message_that_is_not_the_threads_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
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
        with pytest.raises(InvalidArgument, match="`at` must be a string, got 'int'"):
            await one.fork(at=7)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(UnknownMessage):
            await agent.thread("never seen").fork(at=foreign)
        with pytest.raises(InvalidArgument, match="thread 't1' has no message"):
            await agent.thread("t1").fork(to="t2")
        assert await agent.thread("t2").state() is None
        assert grown(before, row_counts(tmp_path)) == {}


async def test_a_name_that_a_thread_has_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        await agent.thread("turns").converse("mine")
        await thread.fork(to="forked")
        before = row_counts(tmp_path)
        for taken in ("t1", "turns", "forked"):
            with pytest.raises(NameTaken, match=f"the thread '{taken}' exists already"):
                await thread.fork(to=taken)
        with pytest.raises(InvalidArgument, match="is not an id"):
            await thread.fork(to="\n")
        assert grown(before, row_counts(tmp_path)) == {}
        assert await said(agent.thread("turns")) == ["mine", "a2"]


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


async def test_a_thread_whose_turn_runs_or_waits_can_be_forked_and_the_fork_waits_for_nobody(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def ask(params: Nothing, ctx: TaskContext) -> Said:
        begun.set()
        await go.wait()
        return Said(text=str(await ctx.calls.ask_person("Which?")))

    shapes = [Shape("ask", Nothing, Said, ask)]
    async with scripted_agent(tmp_path, counting(), shapes=shapes) as agent:
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
        state = await fork.state()
        assert state is not None
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


@pytest.mark.requirement("R13")
async def test_a_fork_needs_no_role_and_does_not_have_that_of_its_thread(tmp_path: Path) -> None:
    lm = counting()
    role = Role("lighthouse", "Answer as the keeper of the seventh lighthouse would answer.")
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t1")
        thread.role.set(role)
        assert (await thread.converse("one", role=Role("brief", "Answer in two words."))).role_tiers
        fork = await thread.fork()
        assert (await fork.converse("two")).role_tiers == ()
        assert role.content not in lm.calls[-1].text
        assert [str(tier) for tier in (await thread.converse("two")).role_tiers] == ["thread"]


async def test_a_branch_begins_with_the_marks_of_its_thread_and_goes_its_own_way(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, counting()) as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        await thread.converse("two")
        asked, answer, *_ = await ids(thread)
        await thread.keep(asked)
        fork, replay = await thread.fork(), await thread.replay()
        edit = await thread.edit("TWO")
        branches = [fork, agent.thread(replay.thread), agent.thread(edit.kept_as), thread]
        assert [[message.id for message in await branch.kept()] for branch in branches] == [[asked]] * 4
        await fork.keep(answer)
        assert await thread.unkeep(asked)
        assert [len(await branch.kept()) for branch in branches] == [2, 1, 1, 0]
