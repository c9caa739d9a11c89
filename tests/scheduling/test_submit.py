"""Submitted turns: a start waits in a queue until a worker begins it, once, whatever dies meanwhile (T10, D10)."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Thinking, calls, paying, shape
from support.postgres import cut, new_database
from support.processes import ending, eventually, next_line, run_script
from support.skill_turns import ROLE, asking, chosen, name_of, package, with_role_but_at_the_critic
from support.submissions import HELLO, assert_no_role_in_queue, becomes, hanging, queued_agent, two_looks, working
from worldagent import Role, Say, Skill, Task, Tier, Worker, WorldAgent
from worldagent.agent import Composed
from worldagent.agent.runtime.inside import inside
from worldagent.agent.submitting import Submission, submitted
from worldagent.core.errors import (
    InvalidArgument,
    KeyReused,
    MissingExtra,
    RoleNotStorable,
    StorageUnavailable,
    UnknownShape,
    UnknownSkill,
    UnknownTier,
    UnknownTurn,
    WorldAgentError,
)
from worldagent.core.pauses import Approve
from worldagent.scheduling import Queue, QueueWorker, RateLimit, StartMessage, StartSkill, StartTask
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("T10"), pytest.mark.on_every_database(soak=True)]


@pytest.mark.on_every_database
@pytest.mark.requirement("T13")
async def test_a_submitted_turn_waits_for_a_worker_and_runs_once(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"reply": f"Hello, {call.index}."})
    async with queued_agent(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        submission = await agent.submit(HELLO, thread=thread, key="greeting")
        assert await submission.status() == "queued"
        assert await submission.turn_id() is None
        assert await thread.state() is None
        again = await agent.submit(HELLO, thread=thread, key="greeting")
        assert again == submission == agent.submission(thread, "greeting")
        async with QueueWorker(agent).running(drain=0):
            turn = await asyncio.wait_for(submission.wait(), 20)
        assert (turn.status, turn.text) == ("done", "Hello, 1.")
        assert (await submission.status(), await submission.turn_id()) == ("done", turn.id)
        kinds = [event.type async for event in submission.events()]
        assert (kinds[0], kinds[-1]) == ("turn_started", "turn_ended")
        state = await thread.state()
        assert state is not None
        assert (state.turn_id, state.account, state.unattended) == (turn.id, "ana", "refuse")
        # What is submitted again once it is over is not run again, nor is a start with the key in this process.
        assert await (await agent.submit(HELLO, thread=thread, key="greeting")).wait() == turn
        assert (await thread.converse("Hello.", key="greeting", unattended=True)).id == turn.id
    assert len(lm.calls) == 1


@pytest.mark.requirement("H11")
@pytest.mark.parametrize(("setting", "option", "guarded"), [("off", True, True), ("unattended", None, True)])
async def test_a_submitted_turn_is_guarded(tmp_path: Path, setting: str, option: bool | None, guarded: bool) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with queued_agent(tmp_path, lm, settings={"guard": setting}) as agent:
        thread = agent.thread("t1", account="ana")
        submission = await agent.submit(Say("Hello.", guard=option), thread=thread)
        async with QueueWorker(agent).running(drain=0):
            await asyncio.wait_for(submission.wait(), 20)
        [message, _] = await thread.history()
    assert message.body.get("guard", False) is guarded


async def test_tasks_and_skills_run_with_what_they_were_given(tmp_path: Path) -> None:
    folder = package(tmp_path)

    def reply(call: Any) -> dict[str, Any]:
        return {"reply": "Tea."} if name_of(call) == "RunSkill" else {"result": "Fine."}

    more = {"workers": [Worker("critic", "You judge.", "judges")], "skills": [folder.parent]}
    async with working(tmp_path / "home", ScriptedLM(reply), **more) as (agent, _):
        task = StartTask("subagent", {"worker": "critic", "request": "Judge."})
        judged = await agent.submit(task, thread=agent.thread("t1"))
        made = await agent.submit(StartSkill("tea", "Two cups."), thread=agent.thread("t2"))
        assert (await asyncio.wait_for(judged.wait(), 20)).result.text == "Fine."
        assert (await asyncio.wait_for(made.wait(), 20)).status == "done"


async def test_a_queued_turn_can_be_cancelled(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with queued_agent(tmp_path, lm) as agent:
        first = await agent.submit(HELLO, thread=agent.thread("t1"))
        second = await agent.submit(HELLO, thread=agent.thread("t2"))
        assert await first.cancel()
        assert await first.status() == "cancelled"
        assert not await first.cancel()
        assert (await first.wait()).status == "cancelled"
        assert [event async for event in first.events()] == []
        async with QueueWorker(agent).running(drain=0):
            await asyncio.wait_for(second.wait(), 20)
        assert await agent.thread("t1").state() is None
    assert len(lm.calls) == 1


async def test_a_running_turn_is_cancelled_in_its_worker(tmp_path: Path) -> None:
    model = Thinking()
    async with working(tmp_path, model.lm) as (agent, _):
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        await asyncio.wait_for(model.asked.wait(), 20)
        assert await submission.status() == "running"
        assert await submission.cancel()
        assert (await asyncio.wait_for(submission.wait(), 20)).status == "cancelled"
        assert not await submission.cancel()


async def test_a_turn_that_waits_for_a_person_leaves_the_queue(tmp_path: Path) -> None:
    done = list[str]()

    def reply(call: Any) -> dict[str, Any]:
        return {"reply": "Paid."} if call.steps else {"reply": "", **calls(("pay", {"what": "toll"}))}

    async with working(tmp_path, ScriptedLM(reply), tools=[paying(done)], queue=Queue(concurrency=1)) as (agent, _):
        thread = agent.thread("t1")
        submission = await agent.submit(HELLO, thread=thread, unattended="pause")
        turn = await asyncio.wait_for(submission.wait(), 20)
        assert (turn.status, await submission.status(), done) == ("paused", "paused", [])
        after = await agent.submit(HELLO, thread=agent.thread("t2"), unattended="refuse")
        await asyncio.wait_for(after.wait(), 20)  # the only place of the queue is free again
        await thread.resume({pause.id: Approve() for pause in turn.pauses})
        assert ((await submission.wait()).text, await submission.status(), done) == ("Paid.", "done", ["toll"])


async def test_a_failure_that_passes_is_tried_again_and_another_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.scheduling.worker.RETRY_SECONDS", (0.01, 0.01))
    answers = iter([ConnectionError("down"), {"reply": "Hello."}])

    def reply(_: Any) -> Any:
        answer = next(answers, ConnectionError("down"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with working(tmp_path, ScriptedLM(reply)) as (agent, worker):
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        assert (await asyncio.wait_for(submission.wait(), 20)).text == "Hello."
        failing = await agent.submit(HELLO, thread=agent.thread("t2"))
        with pytest.raises(WorldAgentError) as caught:
            await asyncio.wait_for(failing.wait(), 20)
        assert (caught.value.code, await failing.status()) == ("model_unavailable", "failed")
        assert worker.counts.failed == 1


async def test_what_a_worker_cannot_begin_has_failed(tmp_path: Path) -> None:
    task = StartTask("subagent", {"worker": "critic", "request": "Judge."})
    async with queued_agent(tmp_path, ScriptedLM([]), workers=[Worker("critic", "You judge.", "judges")]) as agent:
        await agent.submit(task, thread=agent.thread("t1"), key="k")
    async with working(tmp_path, ScriptedLM([])) as (agent, _):  # this one has no such worker
        submission = agent.submission(agent.thread("t1"), "k")
        with pytest.raises(WorldAgentError) as caught:
            await asyncio.wait_for(submission.wait(), 20)
        assert caught.value.code == "unknown_worker"
        assert await submission.status() == "failed"
        with pytest.raises(WorldAgentError):
            [event async for event in submission.events()]


async def test_turns_of_one_thread_run_one_after_another(tmp_path: Path) -> None:
    running = list[int]()

    async def reply(call: Any) -> dict[str, str]:
        running.append(call.index)
        assert len(running) == 1
        await asyncio.sleep(0)
        running.clear()
        return {"reply": "Hello."}

    async with working(tmp_path, ScriptedLM(reply)) as (agent, _):
        every = [await agent.submit(HELLO, thread=agent.thread("t1")) for _ in range(5)]
        turns = await asyncio.wait_for(asyncio.gather(*(each.wait() for each in every)), 30)
        assert [turn.status for turn in turns] == ["done"] * 5
        assert len(await agent.thread("t1").history()) == 10


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R9")
async def test_stored_roles_resolve_in_the_worker_and_none_is_in_the_queue(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    canaries = ("Answer in three words.", "Answer as a sailor.", "Answer as a pirate.", "Answer in rhymes.")
    async with queued_agent(tmp_path, lm) as agent:
        await agent.roles.put("workspace", Role("terse", canaries[0]))
        thread = agent.thread("t1", account="ana", tiers=[Tier.ACCOUNT])
        submission = await agent.submit(HELLO, thread=thread)
        await agent.roles.put("account", Role("sailor", canaries[1]), scope_id="ana")
        thread.role.set(Role("pirate", canaries[2]))
        with pytest.raises(RoleNotStorable, match="pass role=None to submit without it"):
            await agent.submit(HELLO, thread=thread, key="no")
        with pytest.raises(UnknownTier, match="a call role is never stored"):
            await agent.submit(HELLO, thread=thread, key="no", role=Role("poet", canaries[3]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(UnknownTurn):
            await agent.submission(thread, "no").status()
        without = await agent.submit(HELLO, thread=thread, role=None)
        thread.role.clear()
        async with QueueWorker(agent).running(drain=0):
            await asyncio.wait_for(asyncio.gather(submission.wait(), without.wait()), 20)
    assert [canaries[1] in (call.role or "") for call in lm.calls] == [True, True]
    assert [any(each in call.text for each in (canaries[0], *canaries[2:])) for call in lm.calls] == [False, False]
    assert_no_role_in_queue(tmp_path, canaries)


@pytest.mark.parametrize("start", [HELLO, StartSkill("tea", HELLO.message)])
@pytest.mark.requirement("R9", "T6")
async def test_a_submitted_skill_waits_for_an_approval_and_another_agent_resumes_it(tmp_path: Path, start: Any) -> None:
    package(tmp_path)
    (lm, seen), done = chosen(asking), list[str]()
    more: dict[str, Any] = {"skills": [tmp_path / "skills"], "tools": [paying(done)], "workers": [CRITIC]}
    home = tmp_path / "home"
    async with working(home, lm, **more) as (agent, _):
        await agent.roles.put("account", ROLE, scope_id="ana")
        thread = agent.thread("t1", account="ana")
        submission = await agent.submit(start, thread=thread, key="tea", unattended="pause")
        assert (await asyncio.wait_for(submission.wait(), 20)).status == "paused"
    async with queued_agent(home, lm, **more) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
        assert (await agent.submission(thread, "tea").wait()).status == "done"
    inside = ["RunSkill", "RunSkill", "critic", "RunSkill"]
    assert with_role_but_at_the_critic(seen) == (["Converse", *inside, "Converse"] if start is HELLO else inside)
    assert done == ["tea"]
    assert_no_role_in_queue(home, [ROLE.content])


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({"start": StartTask("none")}, UnknownShape, "there is no shape 'none'"),
        ({"start": StartSkill("tea", "Two.")}, UnknownSkill, "there is no skill 'tea'"),
        ({"start": "Hello."}, InvalidArgument, "`start` must be a Say, Task or Skill, got a str"),
        ({"start": Say("Hello.", role=ROLE)}, UnknownTier, "a submitted turn cannot have a call role"),
        ({"start": Say("Hello.", model="fast")}, InvalidArgument, "cannot have `model`, which is not stored"),
        ({"start": Task("subagent", {}, detach=True)}, InvalidArgument, "cannot have `detach`"),
        ({"start": Skill(Composed("Be quick."))}, InvalidArgument, "cannot have a composed skill, which is not stored"),
        ({"start": Say("Bye.")}, KeyReused, "the key 'used' was used on this thread for another request"),
        ({"thread": "t1"}, InvalidArgument, "`thread` must be a thread of this agent"),
        ({"key": ""}, InvalidArgument, "key"),
        ({"priority": 0}, InvalidArgument, "`priority` must be an integer from 1 to 2147483647, got 0"),
        ({"unattended": "perhaps"}, InvalidArgument, "unattended"),
        ({"start": StartMessage("Bye.")}, KeyReused, "the key 'used' was used on this thread for another request"),
    ],
)
async def test_what_cannot_be_submitted(
    tmp_path: Path, given: dict[str, Any], error: type[WorldAgentError], problem: str
) -> None:
    async with queued_agent(tmp_path, ScriptedLM([])) as agent:
        thread = agent.thread("t1")
        used = await agent.submit(HELLO, thread=thread, key="used")
        every: dict[str, Any] = {"start": HELLO, "thread": thread, "key": "used", **given}
        with pytest.raises(error) as caught:
            await agent.submit(**every)
        assert problem in str(caught.value)
        assert await used.status() == "queued"


async def test_a_key_that_a_turn_has_already(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with queued_agent(tmp_path, lm) as agent:
        thread = agent.thread("t1")
        turn = await thread.converse("Hello.", key="used", unattended=True)
        with pytest.raises(KeyReused):
            await agent.submit(StartMessage("Bye."), thread=thread, key="used")
        submission = await agent.submit(Say("Hello.", key="used"), thread=thread)
        async with QueueWorker(agent).running(drain=0):
            assert (await asyncio.wait_for(submission.wait(), 20)).id == turn.id
    assert len(lm.calls) == 1


async def test_an_agent_without_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.agents import scripted_agent

    async with scripted_agent(tmp_path, ScriptedLM([])) as agent:
        with pytest.raises(InvalidArgument, match=r"the agent has no queue; pass WorldAgent\(queue=Queue\(\)\)"):
            await agent.submit(HELLO, thread=agent.thread("t1"))
        with pytest.raises(InvalidArgument, match="the agent has no queue"):
            QueueWorker(agent)
    with pytest.raises(InvalidArgument, match="`queue` must be a Queue, got 'str'"):
        scripted_agent(tmp_path, ScriptedLM([]), queue="queue")
    monkeypatch.setattr("worldagent.scheduling.queue.find_spec", lambda _: None)
    async with queued_agent(tmp_path, ScriptedLM([])) as agent:
        with pytest.raises(MissingExtra, match=r"install it: pip install 'worldagent\[durable\]'"):
            await agent.submit(HELLO, thread=agent.thread("t1"))


@pytest.mark.parametrize(
    "made",
    [
        lambda: Queue(concurrency=0),
        lambda: Queue(worker_concurrency=10_001),
        lambda: Queue(rate_limit=5),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        lambda: RateLimit(0, 1),
        lambda: RateLimit(1, 0),
        lambda: RateLimit(1, float("nan")),
    ],
)
def test_limits_out_of_range(made: Any) -> None:
    with pytest.raises(InvalidArgument):
        made()


async def test_a_worker_deletes_what_left_the_queue_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEPT_SECONDS", "PRUNE_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(f"worldagent.scheduling.worker.{name}", 0.0 if name == "KEPT_SECONDS" else 0.05)
    async with queued_agent(tmp_path, ScriptedLM([{"reply": "Hello."}])) as agent:
        done = await agent.submit(HELLO, thread=agent.thread("t1"))
        cancelled = await agent.submit(HELLO, thread=agent.thread("t2"))
        await cancelled.cancel()
        worker = QueueWorker(agent, concurrency=1)
        async with worker.running(drain=0):
            turn = await asyncio.wait_for(done.wait(), 20)
            await asyncio.wait_for(two_looks(worker), 20)
            with pytest.raises(UnknownTurn, match="nothing was submitted to the thread 't2' with the key"):
                await cancelled.status()
            assert (await done.status(), (await done.wait()).id) == ("done", turn.id)


async def test_turns_wait_for_a_database_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.scheduling.worker.BUSY_SECONDS", 0.01)
    failures = iter([StorageUnavailable("it is down", remedy="start it")] * 10)

    def failing(agent: Any, start: Any) -> Any:
        for failure in failures:
            raise failure
        return submitted(agent, start)

    monkeypatch.setattr("worldagent.scheduling.worker.submitted", failing)
    async with working(tmp_path, ScriptedLM([{"reply": "Hello."}])) as (agent, _):
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        assert (await asyncio.wait_for(submission.wait(), 20)).text == "Hello."


async def test_a_turn_that_uses_a_closed_agent_fails_and_does_not_wait(tmp_path: Path) -> None:
    async with queued_agent(tmp_path / "other", ScriptedLM([])) as other:
        pass

    async def ask(_: Any) -> str:
        return (await other.thread("t1").converse("Hello?")).text

    async with working(tmp_path / "home", ScriptedLM([]), shapes=[shape(ask)]) as (agent, _):
        submission = await agent.submit(StartTask("job"), thread=agent.thread("t1"))
        with pytest.raises(WorldAgentError):
            await asyncio.wait_for(submission.wait(), 20)
        assert await submission.status() == "failed"


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_priority_and_concurrency_over_all(tmp_path: Path) -> None:
    order = list[str]()

    def reply(call: Any) -> dict[str, str]:
        order.append(call.user)
        return {"reply": "Hello."}

    async with queued_agent(tmp_path, ScriptedLM(reply), queue=Queue(concurrency=1)) as agent:
        every = [
            await agent.submit(StartMessage(f"This is {number}."), thread=agent.thread(f"t{number}"), priority=priority)
            for number, priority in enumerate([3, 2, 1, None])
        ]
        worker = QueueWorker(agent)
        async with worker.running(drain=0):
            await asyncio.wait_for(asyncio.gather(*(each.wait() for each in every)), 30)
    assert [next(number for number in "0123" if f"This is {number}." in text) for text in order] == list("3210")


async def test_a_rate_limit_is_kept(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with working(tmp_path, lm, queue=Queue(rate_limit=RateLimit(2, 3600.0))) as (agent, _):
        every = [await agent.submit(HELLO, thread=agent.thread(f"t{number}")) for number in range(3)]
        await asyncio.wait_for(asyncio.gather(*(each.wait() for each in every[:2])), 20)
        await becomes(every[2], "queued")
    assert len(lm.calls) == 2


async def test_a_process_has_one_worker(tmp_path: Path) -> None:
    async with working(tmp_path, ScriptedLM([])) as (agent, _):
        with pytest.raises(InvalidArgument, match="this process runs a worker already"):
            async with QueueWorker(agent).running():
                pass


async def test_an_agent_with_a_queue_loads_dbos_with_its_first_submission_alone() -> None:
    script = "import sys; from worldagent.scheduling import Queue, QueueWorker; Queue(); print('dbos' in sys.modules)"
    assert await run_script(script, fresh=True) == "False\n"


# --- several processes ------------------------------------------------------------------------------------------------


async def _numbers(submission: Submission) -> list[int]:
    return [event.seq async for event in submission.events()]


@pytest.mark.on_every_database
@pytest.mark.requirement("T5")
async def test_a_survivor_resumes_the_turns_of_a_worker_that_was_killed_and_of_no_other(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with queued_agent(tmp_path, lm, queue=Queue(worker_concurrency=5)) as agent:
        every = [await agent.submit(HELLO, thread=agent.thread(f"t{number}")) for number in range(8)]
        async with ending(await hanging(tmp_path, concurrency=5)) as process:
            for _ in range(5):
                assert await next_line(process) == "there"
            following = asyncio.create_task(_numbers(every[0]))
            worker = QueueWorker(agent)
            async with worker.running(drain=0):
                # It does what the other one has left, and nothing of what that one is at, however long it takes.
                await asyncio.wait_for(asyncio.gather(*(each.wait() for each in every[5:])), 20)
                await asyncio.wait_for(two_looks(worker), 20)
                assert [await each.status() for each in every] == ["running"] * 5 + ["done"] * 3
                assert worker.counts.taken_over == 0
                process.kill()
                turns = await asyncio.wait_for(asyncio.gather(*(each.wait() for each in every)), 20)
                assert worker.counts.taken_over == 5
                assert [row.id for row in await inside(agent).stores.workers.list()] == [worker.id]
        assert [turn.status for turn in turns] == ["done"] * 8
        numbers = await asyncio.wait_for(following, 20)  # over both workers, each event once
        assert numbers == list(range(1, len(numbers) + 1))
        assert await inside(agent).stores.workers.list() == ()
    assert len(lm.calls) == 8


async def test_a_worker_that_ends_leaves_what_it_cannot_end_to_the_next(tmp_path: Path) -> None:
    model = Thinking()
    async with queued_agent(tmp_path, model.lm) as agent:
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        async with QueueWorker(agent).running(drain=0):
            await asyncio.wait_for(model.asked.wait(), 20)
        await agent.drain(seconds=0.1)
    lm = ScriptedLM(lambda _: {"reply": "Hello."})
    async with working(tmp_path, lm) as (agent, worker):
        again = agent.submission(agent.thread("t1"), submission.key)
        assert (await asyncio.wait_for(again.wait(), 20)).text == "Hello."
        assert worker.counts.taken_over == 1


async def test_a_worker_that_ends_waits_for_its_turns(tmp_path: Path) -> None:
    model = Thinking()
    async with queued_agent(tmp_path, model.lm) as agent:
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        async with QueueWorker(agent).running(drain=20):
            await asyncio.wait_for(model.asked.wait(), 20)
            asyncio.get_running_loop().call_later(0.3, model.may.set)
        assert await submission.status() == "done"


async def _takes_over(agent: WorldAgent) -> None:
    """Take over every worker, as a survivor would that saw a broken lock."""
    await inside(agent).stores.database.transact(
        lambda tx: tx.execute("UPDATE wa_epoch SET epoch=epoch+1 WHERE key LIKE 'worker %'")
    )


async def _breaks(agent: WorldAgent) -> None:
    """Break the connections of this process, and with them its locks."""
    assert cut(os.environ["WORLDAGENT_DATABASE_URL"]) > 0


@pytest.mark.parametrize("harm", [_takes_over, pytest.param(_breaks, marks=pytest.mark.soak)])
async def test_a_worker_without_its_lease_starts_again_and_its_turn_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Any
) -> None:
    for name in ("BEAT_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(f"worldagent.scheduling.worker.{name}", 0.05)
    if harm is _breaks:
        monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    model = Thinking()
    async with working(tmp_path, model.lm) as (agent, worker):
        before = worker.id
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        await asyncio.wait_for(model.asked.wait(), 20)
        await asyncio.wait_for(two_looks(worker), 20)
        await harm(agent)
        assert await eventually(lambda: worker.counts.taken_over > 0, 20)
        assert worker.id != before
        model.may.set()
        assert (await asyncio.wait_for(submission.wait(), 20)).text == "Fine."
        assert [row.id for row in await inside(agent).stores.workers.list()] == [worker.id]
        assert (
            await asyncio.wait_for((await agent.submit(HELLO, thread=agent.thread("t2"))).wait(), 20)
        ).text == "Fine."
    assert len(model.lm.calls) == 2


async def test_starts_of_another_version_are_left_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with queued_agent(tmp_path, ScriptedLM([{"reply": "Hello."}])) as agent:
        with monkeypatch.context() as patch:
            patch.setattr("worldagent.scheduling.dbos_queue.VERSION", "2")
            submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        later = await agent.submit(HELLO, thread=agent.thread("t2"))
        async with QueueWorker(agent).running(drain=0):
            await asyncio.wait_for(later.wait(), 20)
            assert await submission.status() == "queued"
    assert "1 submitted turns wait for a worker of another version of this package: their format is '2'" in caplog.text
