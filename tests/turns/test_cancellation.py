"""Turns that are cancelled or left: at any step of the event loop the thread, the database and the loop stay sound."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Nothing, Said, answering, open_pauses, scripted_agent
from support.processes import eventually, others
from support.steps import Steps
from worldagent import Role, WorldAgent
from worldagent.core.errors import ModelUnavailable, TaskFailed
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

PLAN = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": n}} for n in ("a", "b")]}
LIMIT = 20


def planning(call: ScriptedCall) -> dict[str, Any]:
    """Dispatch twice, then answer; a second message is answered at once."""
    if call.fields.get("message") == "Still there?":
        return {"reply": "Yes."}
    if "request" in call.fields:
        return {"result": "Weak."}
    told = call.messages[-3:-1]  # what stands just before the turn's message
    return {"reply": "It is weak."} if any("Weak." in text for _, text in told) else PLAN


def locked(home: Path) -> bool:
    """Whether a transaction is open on the agent's database."""
    connection = sqlite3.connect(home / "agent.db", timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


async def run(work: Coroutine[Any, Any, Any], at: int = 0) -> tuple[asyncio.Task[Any], int]:
    """Run `work` as a task that is cancelled at a step of the loop; gives it at its end, and the steps that it took."""
    task = asyncio.ensure_future(work)

    def cancel() -> None:
        task.cancel()

    steps = Steps(at, "steps", cancel)
    end = steps.watch()
    await asyncio.wait({task}, timeout=LIMIT)
    end()
    assert task.done(), "the cancelled task did not end"
    return task, steps.count


async def goes_on(agent: WorldAgent, thread: str) -> None:
    async with asyncio.timeout(LIMIT):
        assert (await agent.thread(thread).converse("Still there?")).text == "Yes."
        kinds = [message.kind for message in await agent.thread(thread).history()]
    whole = ["message", "plan", "result", "result", "answer"]
    assert kinds in [[*whole[:n], "message", "answer"] for n in (0, 1, 2, 4, 5)]


async def cancel_at(home: Path, steps: range) -> int:
    """Cancel a turn of its own at each of `steps`; give how many were cancelled."""
    cancelled = 0
    async with scripted_agent(home, ScriptedLM(planning), workers=[CRITIC]) as agent:
        tasks = others()
        for step in steps:
            thread = f"{home.name}-{step}"  # homes on a server share a database
            turn, _ = await run(agent.thread(thread).converse("Good?", role=Role("r", "Be harsh.")), step)
            # What is left open stays open; what looks for cancellations of others has one of its own now and then.
            assert await eventually(lambda: not locked(home)), f"a transaction stays open, cancelled at step {step}"
            assert await eventually(lambda: others() <= tasks), f"step {step} leaves {asyncio.all_tasks()}"
            if turn.cancelled():
                cancelled += 1
            else:
                assert turn.result().text == "It is weak."
            await goes_on(agent, thread)
    return cancelled


async def whole_turn(home: Path) -> int:
    async with scripted_agent(home, ScriptedLM(planning), workers=[CRITIC]) as agent:
        turn, steps = await run(agent.thread("t").converse("Good?"))
        assert turn.result().text == "It is weak."
    return steps


@pytest.mark.requirement("T4")
async def test_a_turn_that_is_cancelled_at_any_step_leaves_the_thread_usable(tmp_path: Path) -> None:
    count = await whole_turn(tmp_path / "count")
    assert (await cancel_at(tmp_path / "home", range(1, count, 17))) > 10


@pytest.mark.soak
@pytest.mark.on_every_database
@pytest.mark.timeout(3000)
async def test_a_turn_that_is_cancelled_at_every_step_leaves_the_thread_usable(tmp_path: Path) -> None:
    count = await whole_turn(tmp_path / "count")
    for round_ in range(5):
        await cancel_at(tmp_path / f"home{round_}", range(1, count + 50))


@pytest.mark.requirement("T10")
async def test_a_stream_can_be_left_at_any_event(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(planning), workers=[CRITIC]) as agent:
        async with agent.thread("whole").stream("Good?") as stream:
            count = len([event async for event in stream])
        tasks = others()
        for leave in range(count + 1):
            seen: list[int] = []
            async with agent.thread(f"t{leave}").stream("Good?") as stream:
                while len(seen) < leave:
                    seen.append((await anext(stream)).seq)
            assert seen == list(range(1, leave + 1))
            assert stream.turn.status == ("done" if leave == count else stream.turn.status)
            assert stream.turn.id == stream.turn_id
            assert not locked(tmp_path)
            assert await eventually(lambda: others() <= tasks)
            await goes_on(agent, f"t{leave}")


@pytest.mark.requirement("T10")
async def test_a_reader_that_gives_up_waiting_and_comes_back_misses_no_event(tmp_path: Path) -> None:
    seqs: list[int] = []
    async with (
        scripted_agent(tmp_path, ScriptedLM(planning), workers=[CRITIC]) as agent,
        agent.thread("t").stream("Good?") as stream,
        asyncio.timeout(LIMIT),
    ):
        ended, tries = False, 0
        while not ended:
            tries += 1
            reading = asyncio.ensure_future(anext(stream))
            for _ in range(tries % 5):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                seqs.append(reading.result().seq)
                ended = reading.result().type == "turn_ended"
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_handler_whose_own_work_was_cancelled_has_failed_and_the_turn_is_not_cancelled(tmp_path: Path) -> None:
    async def gives_up(params: Nothing, ctx: TaskContext) -> Nothing:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner
        return params

    shape = Shape("give_up", Nothing, Nothing, gives_up)
    async with scripted_agent(tmp_path, answering(), shapes=[shape]) as agent, asyncio.timeout(LIMIT):
        with pytest.raises(TaskFailed, match="'give_up' failed with CancelledError"):
            await agent.thread("t").task("give_up", {})


async def test_a_model_call_that_is_cancelled_from_inside_is_a_failure_of_the_model(tmp_path: Path) -> None:
    async def gives_up(call: ScriptedCall) -> Any:
        raise asyncio.CancelledError

    async with scripted_agent(tmp_path, ScriptedLM([gives_up, {"reply": "Fine."}])) as agent:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(ModelUnavailable, match="cancelled from within"):
                await agent.thread("t").converse("Hi")
            assert (await agent.thread("t").converse("Hi")).text == "Fine."


def asking(home: Path, effect: Callable[[], Awaitable[None]]) -> WorldAgent:
    """An agent whose shape asks for leave and asks a question side by side."""

    async def pay() -> str:
        await effect()
        return "paid"

    async def ask(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=" ".join(await asyncio.gather(ctx.calls.ask_person("Now?"), ctx.call("pay", {}))))

    return scripted_agent(
        home, answering(), tools=[tool(approval=True)(pay)], shapes=[Shape("ask", Nothing, Said, ask)]
    )


@pytest.mark.requirement("T4")
async def test_cancel_ends_both_resumes_of_one_agent(tmp_path: Path) -> None:
    waits = asyncio.Event()

    async def never() -> None:
        waits.set()
        await asyncio.Event().wait()

    async with asking(tmp_path, never) as agent:
        thread = agent.thread("t")
        ids = {pause.kind: pause.id for pause in (await thread.task("ask", {})).pauses}
        first = asyncio.create_task(thread.resume({ids["approval"]: Approve()}))
        await asyncio.wait_for(waits.wait(), LIMIT)
        second = asyncio.create_task(thread.resume({ids["question"]: "yes"}))
        async with asyncio.timeout(LIMIT):
            while await open_pauses(thread):  # noqa: ASYNC110 -- what stands in the database sets no event
                await asyncio.sleep(0)
            assert await thread.cancel()
            assert [(await turn).status for turn in (first, second)] == ["cancelled", "cancelled"]
