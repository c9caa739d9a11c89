"""Unattended turns: what is refused, what pauses, who is notified, and what is never settled by itself (T13)."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Writing, answering, scripted_agent, shape, streamed
from support.processes import killed, lines, run_script, start_script
from worldagent import WorldAgent
from worldagent.agent import Trigger
from worldagent.core.errors import CallRefused, EffectUncertain
from worldagent.core.events import CallDecided, PauseNotified, PauseOpened, Risk, TurnEnded
from worldagent.core.pauses import Approve, Happened, Pause, UnattendedMode
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Policy, flow, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("T13")

FIRED = Trigger(schedule="nightly", fired_at=datetime(2030, 1, 1, tzinfo=UTC))

LOOKER = """
import asyncio, sys
from pathlib import Path
from support.agents import answering, scripted_agent, shape
from support.processes import add, wait_for_kill
from worldagent.harness import tool

home, part = Path(sys.argv[1]), sys.argv[2]

@tool(risk="read_only")
async def look(what: str) -> str:
    add(home / "done", "look " + what)
    if (part, what) == ("begin", "b"):
        await wait_for_kill()
    return what

@tool
async def write(what: str) -> None:
    add(home / "done", "write " + what)

async def job(ctx):
    await ctx.call("write", {"what": await ctx.call("look", {"what": "a"})})
    return await ctx.call("look", {"what": "b"})

async def main():
    async with scripted_agent(home, answering(), tools=[look, write], shapes=[shape(job)]) as agent:
        thread = agent.thread("t")
        print((await (thread.task("job", {}) if part == "begin" else thread.resume())).status)

asyncio.run(main())
"""


class Desk:
    """A notifier that keeps what it gets."""

    def __init__(self) -> None:
        self.pauses: list[Pause] = []

    async def notify(self, pause: Pause) -> None:
        self.pauses.append(pause)


async def or_refusal(calling: Awaitable[Any]) -> str:
    try:
        return str(await calling)
    except CallRefused as error:
        return f"refused: {error.problem}"


def shop(home: Path, done: list[str], lm: Any = None, **more: Any) -> WorldAgent:
    @tool(approval=True)
    async def pay(what: str) -> str:
        """Pay."""
        done.append(what)
        return f"paid {what}"

    @flow
    async def deep(ctx: CallContext) -> str:
        """Pay from inside a flow."""
        return await or_refusal(ctx.call("pay", {"what": "deep"}))

    async def job(ctx: TaskContext) -> str:
        return await or_refusal(ctx.call("pay", {"what": "a"}))

    async def through(ctx: TaskContext) -> str:
        return str(await ctx.call("deep", {}))

    async def outer(ctx: TaskContext) -> str:
        return str((await ctx.task("job", {})).text)

    async def question(ctx: TaskContext) -> str:
        return await or_refusal(ctx.calls.ask_person("Which colour?", ["red", "blue"]))

    async def two(ctx: TaskContext) -> str:
        return f"{await ctx.call('pay', {'what': 'a'})}, {await ctx.call('pay', {'what': 'b'})}"

    shapes = [shape(handler, key=handler.__name__) for handler in (job, through, outer, question, two)]
    return scripted_agent(home, lm or answering(), tools=[pay, deep], shapes=shapes, **more)


@pytest.mark.parametrize("name", ["through", "outer", "question"])
async def test_refuse_refuses_at_every_depth_and_records_who_decided(tmp_path: Path, name: str) -> None:
    done: list[str] = []
    async with shop(tmp_path, done) as agent:
        turn, events = await streamed(agent.thread("t").stream_task(name, {}, unattended="refuse"))
        [thread] = await agent.threads()
        assert "unattended turn" in turn.text
        assert (turn.status, done, thread.status) == ("done", [], "done")
        [decided] = [event for event in events if isinstance(event, CallDecided)]
        assert (decided.decision, decided.gate) == ("refuse", "unattended")
        assert not [event for event in events if isinstance(event, PauseOpened)]
        kept = await agent.traces.get(turn.id)
        assert [(record.status, record.gate) for record in kept.records if record.kind == "approval"] == [
            ("refuse", "unattended")
        ]


async def test_an_approver_in_the_process_answers_before_a_call_is_refused(tmp_path: Path) -> None:
    done: list[str] = []
    asked: list[str] = []

    async def approver(pause: Pause) -> Approve | None:
        asked.append(str(pause.arguments["what"]))
        return Approve() if len(asked) == 1 else None

    async with shop(tmp_path, done, approver=approver) as agent:
        with pytest.raises(CallRefused, match="unattended turn"):
            await agent.thread("t").task("two", {}, unattended="refuse")
    assert (asked, done) == (["a", "b"], ["a"])


async def test_pause_notifies_once_for_each_pause_and_a_person_resumes(tmp_path: Path) -> None:
    done: list[str] = []
    desk = Desk()
    async with shop(tmp_path, done, notifier=desk) as agent:
        everyone, other = agent.events(), agent.events(account="bo")
        own = agent.events(account="ana")
        thread = agent.thread("t", account="ana")
        turn, events = await streamed(thread.stream_task("two", {}, unattended="pause"))
        [first] = turn.pauses
        assert [pause.id for pause in desk.pauses] == [first.id]
        [told] = [event for event in events if isinstance(event, PauseNotified)]
        assert (told.pause_id, told.thread, told.account) == (first.id, "t", "ana")
        assert isinstance(events[-1], TurnEnded)
        for reader in (everyone, own):
            assert await asyncio.wait_for(anext(reader), 5) == told
        again = await thread.resume()
        assert [pause.id for pause in again.pauses] == [first.id]
        assert len(desk.pauses) == 1
        second = await thread.resume({first.id: Approve()})
        assert [pause.id for pause in desk.pauses] == [first.id, second.pauses[0].id]
        end = await thread.resume({second.pauses[0].id: Approve()})
        assert (end.status, done, len(desk.pauses)) == ("done", ["a", "b"], 2)
    assert [event async for event in other] == []


async def test_failing_notifier_is_logged_and_turn_pauses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def notify(self, pause: Pause) -> None:
            raise SystemExit("no mail server")

    with caplog.at_level(logging.WARNING, logger="worldagent.turns"):
        async with shop(tmp_path, [], notifier=Broken()) as agent:
            turn = await agent.thread("t").task("job", {}, unattended="pause")
    assert turn.status == "paused"
    assert "the notifier failed" in caplog.text
    assert "no mail server" not in caplog.text


async def test_a_notifier_that_hangs_holds_a_turn_up_for_a_bounded_time(tmp_path: Path) -> None:
    began = asyncio.Event()

    class Hanging:
        async def notify(self, pause: Pause) -> None:
            began.set()
            await asyncio.Event().wait()

    clock = VirtualClock()
    async with shop(tmp_path, [], notifier=Hanging(), clock=clock) as agent:
        running = asyncio.create_task(agent.thread("t").task("job", {}, unattended="pause"))
        await asyncio.wait_for(began.wait(), 10)
        await clock.advance(11)
        assert (await asyncio.wait_for(running, 10)).status == "paused"


@pytest.mark.parametrize(
    ("setting", "given", "status"),
    [("refuse", None, "done"), ("refuse", False, "paused"), ("refuse", "pause", "paused"), ("pause", True, "paused")],
)
async def test_setting_makes_scheduled_runs_unattended(tmp_path: Path, setting: str, given: Any, status: str) -> None:
    lm = ScriptedLM(
        [{"reply": "", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}, {"reply": "Done."}]
    )
    policy = Policy(rules=(Rule(decision="ask", function="*"),))
    settings = {"unattended": setting}
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], settings=settings, policy=policy) as agent:
        turn = await agent.thread("t").run_scheduled(FIRED, unattended=given)
    assert turn.status == status


@pytest.mark.parametrize("mode", ["refuse", "pause"])
async def test_an_uncertain_call_is_settled_by_a_person_alone(tmp_path: Path, mode: UnattendedMode) -> None:
    slow, desk = Writing(), Desk()

    @tool(approval=True)
    async def pay(what: str) -> str:
        return f"paid {what}"

    async def job(ctx: TaskContext) -> str:
        return f"{await ctx.call('slow', {'what': 'a'})} {await or_refusal(ctx.call('pay', {'what': 'a'}))}"

    def opened() -> WorldAgent:
        return scripted_agent(tmp_path, answering(), tools=[*slow.functions, pay], shapes=[shape(job)], notifier=desk)

    async with opened() as agent:
        running = asyncio.create_task(agent.thread("t").task("job", {}, unattended=mode))
        await slow.waits.wait()
        await agent.drain(0)
        assert (await running).status == "stopped"
    for _ in range(2):  # however often the turn is resumed
        async with opened() as agent:
            thread = agent.thread("t")
            if mode == "refuse":
                says = r"/slow:.*Happened\(result\), NotHappened\(\) or RunAgain\(\)"
                with pytest.raises(EffectUncertain, match=says):
                    await thread.resume()
            else:
                assert (await thread.resume()).status == "paused"
            [pause] = await thread.pauses()
            assert pause.kind == "uncertain"
    assert [pause.kind for pause in desk.pauses] == (["uncertain"] if mode == "pause" else [])
    async with opened() as agent:  # the mode was kept
        thread = agent.thread("t")
        turn = await thread.resume({each.id: Happened("sent before") for each in await thread.pauses()})
    if mode == "refuse":
        assert turn.status == "done"
        assert "sent before refused: " in turn.text
    else:
        assert (turn.status, [pause.kind for pause in desk.pauses]) == ("paused", ["uncertain", "approval"])
    assert slow.done == []


@pytest.mark.parametrize("mode", ["refuse", "pause"])
@pytest.mark.parametrize("was", ["read_only", "write"])
async def test_an_interrupted_look_up_runs_again_unasked(tmp_path: Path, mode: UnattendedMode, was: Risk) -> None:
    """Also one that was recorded when it began, as the calls of other functions are, and of earlier versions."""
    desk, looks = Desk(), list[str]()
    waits = asyncio.Event()

    async def look(what: str) -> str:
        looks.append(what)
        if len(looks) == 1:
            waits.set()
            await asyncio.Event().wait()
        return f"seen {what}"

    async def job(ctx: TaskContext) -> str:
        return str(await ctx.call("look", {"what": "a"}))

    def opened(risk: Risk) -> WorldAgent:
        return scripted_agent(tmp_path, answering(), tools=[tool(look, risk=risk)], shapes=[shape(job)], notifier=desk)

    async with opened(was) as agent:
        running = asyncio.create_task(agent.thread("t").task("job", {}, unattended=mode))
        await waits.wait()
        await agent.drain(0)
        assert (await running).status == "stopped"
    async with opened("read_only") as agent:
        turn = await agent.thread("t").resume()
    assert (turn.status, turn.pauses, turn.text) == ("done", (), '{"text":"seen a"}')
    assert (looks, desk.pauses) == (["a", "a"], [])


async def test_a_look_up_about_which_a_person_was_asked_resumes_with_the_answer(tmp_path: Path) -> None:
    slow = Writing()

    async def job(ctx: TaskContext) -> str:
        return str(await ctx.call("slow", {"what": "a"}))

    def opened(**risk: Any) -> WorldAgent:
        tools = [tool(each.body, name=each.name, **risk) for each in slow.functions]
        return scripted_agent(tmp_path, answering(), tools=tools, shapes=[shape(job)])

    async with opened() as agent:
        running = asyncio.create_task(agent.thread("t").task("job", {}))
        await slow.waits.wait()
        await agent.drain(0)
        assert (await running).status == "stopped"
    async with opened() as agent:
        [pause] = (await agent.thread("t").resume()).pauses
    async with opened(risk="read_only") as agent:
        turn = await agent.thread("t").resume({pause.id: Happened("seen before")})
    assert (turn.status, turn.text) == ("done", '{"text":"seen before"}')


@pytest.mark.requirement("T5")
async def test_a_look_up_whose_result_was_recorded_is_not_made_again_after_a_kill(tmp_path: Path) -> None:
    """The record of an effect is written with all results before it, so no effect relies on a result that is lost."""
    await killed(await start_script(LOOKER, tmp_path, "begin"))
    assert await run_script(LOOKER, tmp_path, "resume") == "done\n"
    assert lines(tmp_path / "done") == ["look a", "write a", "look b", "look b"]
