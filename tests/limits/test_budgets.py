"""Limits in calls and tokens, what is inherited, and what bounds a turn where nothing else is said (H4)."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import Writing, answering, calls, scripted_agent, shape, to, told
from worldagent import WorldAgent
from worldagent.core.errors import LimitReached
from worldagent.core.events import CallDecided, TurnEnded
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.harness.limits import Limits, Spent
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("H4")

LOOK = "look"


def looking(done: list[str]) -> Function:
    @tool(name=LOOK, risk="read_only")
    async def look(what: str) -> str:
        done.append(what)
        return f"seen {what}"

    made: Function = look
    return made


def scripted(*, looks: int = 9) -> ScriptedLM:
    """A planner that asks the worker once, which looks so often, each time at another thing, and says what it heard."""

    def reply(call: ScriptedCall) -> Any:
        heard = " ".join(told(call))
        if "request" not in call.fields:
            return {"reply": "Done."} if heard else to("scout")
        seen = heard.count("You called")
        if seen < looks and "limit_reached" not in heard:
            return calls((LOOK, {"what": f"thing {seen}"}))
        return {"result": "enough" if "limit_reached" in heard else "all"}

    return ScriptedLM(reply)


def scout(**limits: Any) -> Worker:
    return Worker("scout", "You look.", "looks", tools=(LOOK,), limits=Limits(**limits))


async def events_of(agent: WorldAgent, text: str = "Go", thread: str = "t", **scope: Any) -> tuple[list[Any], Any]:
    """The events of a turn, and what became of it."""
    seen = list[Any]()
    async with agent.thread(thread, **scope).stream(text) as stream:
        try:
            async for event in stream:
                seen.append(event)
            return seen, await stream.wait()
        except LimitReached as error:
            return seen, error


# --- of a worker, of a function -------------------------------------------------------------------------------------


async def test_worker_over_its_calls_answers_and_the_turn_continues(tmp_path: Path) -> None:
    done, lm = list[str](), scripted()
    async with scripted_agent(tmp_path, lm, workers=[scout(calls=2)], tools=[looking(done)]) as agent:
        events, turn = await events_of(agent)
    assert turn.status == "done"
    assert done == ["thing 0", "thing 1"]
    assert "the worker 'scout' reached its limit of 2 calls" in " ".join(told(lm.calls[-2]))
    [refused] = [event for event in events if isinstance(event, CallDecided)]
    assert (refused.function, refused.decision, refused.gate) == (LOOK, "refuse", "limit")


async def test_grandchildren_spend_what_their_grandparent_has_left(tmp_path: Path) -> None:
    done, reached = list[str](), list[str]()

    @flow(limits=Limits(calls=100))
    async def inner(ctx: CallContext, name: str) -> int:
        try:
            for count in range(5):
                await ctx.call(LOOK, {"what": f"{name}{count}"})
        except LimitReached as error:
            reached.append(error.problem)
        return 0

    @flow(limits=Limits(calls=7))
    async def outer(ctx: CallContext) -> int:
        await ctx.call("inner", {"name": "a"})
        await ctx.call("inner", {"name": "b"})
        return 0

    async with scripted_agent(tmp_path, answering(), tools=[looking(done), inner, outer]) as agent:
        await agent.call("outer", {})
        await agent.call("outer", {})  # each call of it has its own
    assert done == ["a0", "a1", "a2", "a3", "a4"] * 2  # and twice `inner` itself
    assert reached == ["the flow 'outer' reached its limit of 7 calls"] * 2


# --- of a turn ------------------------------------------------------------------------------------------------------


async def test_turn_over_its_calls_ends_and_resumes_with_a_higher_limit(tmp_path: Path) -> None:
    done: list[str] = []
    given: dict[str, Any] = {"workers": [scout()], "tools": [looking(done)]}
    async with scripted_agent(tmp_path, scripted(looks=3), settings={"turn_calls": 3}, **given) as agent:
        events, error = await events_of(agent)
        assert isinstance(error, LimitReached)
        assert error.problem == "the turn reached its limit of 3 calls"
        assert error.remedy == "raise the setting turn_calls, and resume the turn to continue"
        assert isinstance(events[-1], TurnEnded)
        assert (events[-1].status, events[-1].code) == ("failed", "limit_reached")
        assert done == ["thing 0", "thing 1"]  # the worker itself is one of the calls
        with pytest.raises(LimitReached):
            await agent.thread("t").resume()
        assert done == ["thing 0", "thing 1"]
    async with scripted_agent(tmp_path, scripted(looks=3), settings={"turn_calls": 4}, **given) as agent:
        assert (await agent.thread("t").resume()).status == "done"
        assert (await agent.usage()).calls == 4
    assert done == ["thing 0", "thing 1", "thing 2"]


async def test_flow_cannot_catch_the_limit_of_its_turn(tmp_path: Path) -> None:
    writing = Writing()

    async def job(ctx: TaskContext) -> str:
        for what in "abc":
            try:
                await ctx.call("write", {"what": what})
            except LimitReached:
                continue
        return "done"

    given: dict[str, Any] = {"tools": writing.functions, "shapes": [shape(job)], "settings": {"turn_calls": 2}}
    async with scripted_agent(tmp_path, answering(), **given) as agent:
        with pytest.raises(LimitReached, match="the turn reached its limit of 2 calls"):
            await agent.thread("t").task("job", {})
        assert [state.status for state in await agent.threads()] == ["failed"]
    assert writing.done == ["a"]


async def test_a_turn_that_has_used_up_its_tokens_ends_before_the_next_model_call(tmp_path: Path) -> None:
    done, lm = list[str](), scripted()
    settings = {"turn_tokens": 1}
    async with scripted_agent(tmp_path, lm, workers=[scout()], tools=[looking(done)], settings=settings) as agent:
        _, error = await events_of(agent)
        assert isinstance(error, LimitReached)
        assert error.problem == "the turn reached its limit of 1 tokens"
        assert len(lm.calls) == 1
        used = (await agent.usage()).tokens
        assert used > 1
        with pytest.raises(LimitReached):  # what it has used before counts
            await agent.thread("t").resume()
        assert len(lm.calls) == 1
        assert (await agent.usage()).tokens == used


async def write_once(ctx: TaskContext) -> str:
    return str(await ctx.call("write", {"what": "a"}))


# --- of a day -------------------------------------------------------------------------------------------------------


@pytest.mark.on_every_database
async def test_an_account_and_a_workspace_have_so_much_a_day(tmp_path: Path) -> None:
    writing, clock = Writing(), VirtualClock(datetime(2031, 5, 1, 23, tzinfo=UTC))

    settings = {"account_limits": {"calls": 4}, "workspace_limits": {"calls": 6}}
    given: dict[str, Any] = {"tools": writing.functions, "shapes": [shape(write_once)], "clock": clock}
    agent = scripted_agent(tmp_path, answering(), settings=settings, **given)

    async def run(account: str) -> str:
        thread = agent.thread(f"of-{account}-{len(writing.done)}", account=account)
        try:
            return (await thread.task("job", {})).status
        except LimitReached as error:
            return error.problem

    async with agent:
        assert [await run("ada") for _ in range(3)] == [
            "done",
            "done",
            "the account 'ada' reached its limit of 4 calls a day",
        ]
        assert [await run("bob"), await run("bob")] == [
            "done",
            "the workspace 'novel' reached its limit of 6 calls a day",
        ]
        assert await agent.usage(account="ada") == Spent(calls=4)
        assert await agent.usage() == Spent(calls=6)
        await clock.advance(3600)  # the next day
        assert await agent.usage() == Spent()
        assert [await run("ada"), await run("bob")] == ["done", "done"]
        assert await agent.usage() == Spent(calls=4)


@pytest.mark.on_every_database
async def test_many_turns_at_once_lose_nothing_of_what_is_used(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tools": Writing().functions, "shapes": [shape(write_once)]}
    settings = {"account_limits": {"calls": 1000}}
    agents = [scripted_agent(tmp_path, answering(), settings=settings, **given) for _ in range(2)]
    async with agents[0], agents[1]:
        runs = [
            agents[number % 2].thread(f"t{number}", account=f"a{number % 3}").task("job", {}) for number in range(30)
        ]
        await asyncio.gather(*runs)
        assert await agents[0].usage() == Spent(calls=60)
        assert [await agents[1].usage(account=f"a{number}") for number in range(3)] == [Spent(calls=20)] * 3


async def test_a_call_outside_any_turn_has_the_limits_of_one_and_counts_for_the_day(tmp_path: Path) -> None:
    done = list[str]()

    @flow
    async def twice(ctx: CallContext) -> int:
        for what in "ab":
            await ctx.call(LOOK, {"what": what})
        return 0

    settings = {"turn_calls": 2, "account_limits": {"calls": 100}}
    agent = scripted_agent(tmp_path, answering(), tools=[looking(done), twice], settings=settings)
    async with agent:
        with pytest.raises(LimitReached, match="the turn reached its limit of 2 calls"):
            await agent.call("twice", {}, account="ada")
        assert await agent.usage(account="ada") == Spent(calls=2)
    assert done == ["a"]


# --- bad input ------------------------------------------------------------------------------------------------------


BOUND = 10  # seconds; it takes a tenth of one on a machine that does nothing else
CHOSEN, AT_ONCE = 500, 32


def digger(done: list[str]) -> tuple[ScriptedLM, list[Function]]:
    """A model that calls `dig` 16 times with each answer, and 750 times in all."""

    @tool(risk="read_only")
    async def dig(where: str) -> str:
        done.append(where)
        return where

    def reply(call: ScriptedCall) -> Any:
        if len(done) > 750 or "You can call nothing any more" in str(call.messages):
            return {"result": "deep enough"}
        return calls(*(("dig", {"where": f"{len(done)}.{n}"}) for n in range(16)))

    return ScriptedLM(reply), [dig]


MOLE = Worker("mole", "You dig.", "digs", tools=("dig",), max_steps=1000)


@pytest.mark.requirement("H4", "T5")
async def test_models_may_choose_500_calls_in_a_turn_where_no_setting_says_how_many(tmp_path: Path) -> None:
    done: list[str] = []
    lm, functions = digger(done)
    given: dict[str, Any] = {"workers": [MOLE], "tools": functions}
    async with scripted_agent(tmp_path, lm, **given) as agent:
        thread = agent.thread("t")
        with pytest.raises(LimitReached, match="reached its limit of 500 calls that models choose; set turn_calls"):
            await thread.task("subagent", {"worker": "mole", "request": "Dig."})
        assert len(done) == CHOSEN
        with pytest.raises(LimitReached):  # it has used them, in whatever run
            await thread.resume()
        assert len(done) == CHOSEN
    async with scripted_agent(tmp_path, lm, settings={"turn_calls": 700}, **given) as agent:
        with pytest.raises(LimitReached, match="the turn reached its limit of 700 calls"):
            await agent.thread("t").resume()
    assert len(done) == 700 - 1  # and the worker itself
    async with scripted_agent(tmp_path, lm, settings={"turn_calls": None}, **given) as agent:
        assert (await agent.thread("t").resume()).status == "done"
    assert len(done) > 750


@pytest.mark.parametrize(("settings", "expected"), [({}, AT_ONCE), ({"turn_concurrency": 3}, 3)])
async def test_at_most_32_chosen_calls_run_at_once(tmp_path: Path, settings: dict[str, Any], expected: int) -> None:
    now = most = 0
    full = asyncio.Event()

    @tool(risk="read_only")
    async def dig(where: int) -> int:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        if now == expected:
            full.set()
        await asyncio.wait_for(full.wait(), BOUND)
        now -= 1
        return where

    @flow
    async def dig_all(ctx: CallContext) -> int:
        await asyncio.gather(*(ctx.call("dig", {"where": n}) for n in range(100)))
        return most

    def reply(call: ScriptedCall) -> Any:
        if "called" in str(call.messages[1:]):
            return {"result": "done"}
        boss = call.fields["request"] == "Dig."
        return calls(*(("mole", {"request": f"{n}"}) if boss else ("dig", {"where": n}) for n in range(16)))

    boss = Worker("boss", "You have others dig.", "digs", tools=("mole",))
    given: dict[str, Any] = {"workers": [boss, MOLE], "tools": [dig, dig_all], "settings": settings}
    async with scripted_agent(tmp_path, ScriptedLM(reply), **given) as agent:
        assert (await agent.thread("t").task("subagent", {"worker": "boss", "request": "Dig."})).status == "done"
        assert most == expected
        assert await agent.call("dig_all", {}) == 100  # that is chosen by code
