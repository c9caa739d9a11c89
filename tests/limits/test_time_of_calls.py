"""How long a call may take, how often it is tried, how deep calls nest; and tools that ignore their end (H4)."""

import asyncio
import itertools
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent, shape, to
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import (
    CallTimeout,
    DepthExceeded,
    LimitReached,
    StorageInvalid,
    TaskFailed,
    ToolFailed,
    TurnTimeout,
)
from worldagent.core.events import CallRetried
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Function, ToolContext, flow, tool
from worldagent.harness.limits import Limits, Retry, with_timeout
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("H4")

BOUND = 30


def agent_of(home: Path, *functions: Function, lm: Any = None, **more: Any) -> WorldAgent:
    return scripted_agent(home, lm or answering(), tools=functions, **more)


def stubborn(until: asyncio.Event, begun: asyncio.Event | None = None) -> Function:
    """A tool that swallows every cancellation."""

    @tool(risk="read_only", timeout=5)
    async def dig() -> str:
        if begun is not None:
            begun.set()
        while not until.is_set():
            try:
                await until.wait()
            except asyncio.CancelledError:
                continue
        return "dug"

    return dig


async def moved_on(clock: VirtualClock, running: asyncio.Future[Any], seconds: float) -> None:
    """Let time pass until something ends, by so much at once, and in real time no longer than the bound.

    It passes only while something waits for it, so no wait begins later because the machine is busy.
    """
    async with asyncio.timeout(BOUND):
        while not running.done():
            if clock.sleepers:
                await clock.advance(seconds)
            await asyncio.sleep(0.001)


async def test_cancellation_while_a_late_call_is_ended_is_raised() -> None:
    until, ending = asyncio.Event(), asyncio.Event()

    async def dig() -> None:
        while not until.is_set():
            try:
                await until.wait()
            except asyncio.CancelledError:
                ending.set()

    late = ToolFailed("it is late", remedy="wait")
    running = asyncio.create_task(with_timeout(dig(), asyncio.sleep(0), what="it", late=lambda: late))
    await ending.wait()
    running.cancel()
    until.set()
    with pytest.raises(asyncio.CancelledError):
        await running


# --- time -----------------------------------------------------------------------------------------------------------


async def followed(agent: WorldAgent, events: list[Any]) -> Turn:
    """A turn, whose events are put into `events` as they come."""
    async with agent.thread("t").stream("Go") as stream:
        async for event in stream:
            events.append(event)
        return await stream.wait()


async def test_tool_that_ignores_its_timeout_is_abandoned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, until = VirtualClock(), asyncio.Event()
    try:
        with caplog.at_level(logging.WARNING, logger="worldagent.calls"):
            async with agent_of(tmp_path, stubborn(until), clock=clock) as agent:
                running = asyncio.ensure_future(agent.call("dig", {}))
                await clock.advance(5)
                with pytest.raises(CallTimeout):
                    await asyncio.wait_for(running, BOUND)  # the tool itself never ends
        assert [record.getMessage() for record in caplog.records] == [
            "function 'dig' is still running after its cancellation; its result will be dropped"
        ]
    finally:
        until.set()
        await asyncio.sleep(0)


async def test_a_tool_that_ignores_cancellation_does_not_hold_the_turn_past_its_limit(tmp_path: Path) -> None:
    until, begun = asyncio.Event(), asyncio.Event()

    async def job(ctx: TaskContext) -> str:
        return str(await ctx.call("dig", {}))

    clock = VirtualClock()
    dig = stubborn(until, begun)
    agent = agent_of(tmp_path, dig, shapes=[shape(job)], clock=clock, settings={"turn_timeout": 3})
    await agent.start()
    try:
        thread = agent.thread("t")
        running = asyncio.ensure_future(thread.task("job", {}))
        await asyncio.wait_for(begun.wait(), BOUND)
        for _ in range(50):
            await asyncio.sleep(0)
        await clock.advance(3)
        with pytest.raises(TurnTimeout):
            await asyncio.wait_for(running, BOUND)  # the tool itself never ends
    finally:
        until.set()
        await agent.aclose()


async def test_function_on_a_thread_learns_of_its_cancellation(tmp_path: Path) -> None:
    begun, told_so = threading.Event(), threading.Event()

    @tool(risk="read_only", timeout=0.2)
    def dig(ctx: ToolContext) -> str:
        begun.set()
        for _ in range(3000):
            if ctx.cancelled:
                told_so.set()
                return ""
            time.sleep(0.01)
        return ""

    async with agent_of(tmp_path, dig) as agent:
        with pytest.raises(CallTimeout):
            await asyncio.wait_for(agent.call("dig", {}), BOUND)
        assert begun.is_set()
        assert await asyncio.to_thread(told_so.wait, BOUND)


# --- retries --------------------------------------------------------------------------------------------------------


async def test_a_retry_with_backoff_is_seen_in_the_events(tmp_path: Path) -> None:
    clock, at, seen = VirtualClock(), list[float](), list[Any]()

    @tool(risk="read_only", retry=Retry(attempts=4, backoff=2, longest=5))
    async def fetch(request: str) -> str:
        at.append(clock.monotonic())
        if len(at) < 4:
            raise ConnectionError("gone")
        return "there"

    lm = ScriptedLM([to("fetch"), {"reply": "Done."}])
    async with scripted_agent(tmp_path, lm, workers=[fetch], clock=clock) as agent:
        running = asyncio.ensure_future(followed(agent, seen))
        await moved_on(clock, running, 0.25)
        assert (await running).status == "done"
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert waits == [2, 4, 5]
    retried = [event for event in seen if isinstance(event, CallRetried)]
    assert [(event.function, event.attempt, event.code, event.seconds) for event in retried] == [
        ("fetch", 2, "task_failed", 2),
        ("fetch", 3, "task_failed", 4),
        ("fetch", 4, "task_failed", 5),
    ]
    assert len({event.call_id for event in retried}) == 1


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (ConnectionError("gone"), 3),
        (CallTimeout("late", remedy="wait"), 3),
        (ToolFailed("no", remedy="mend it"), 1),
        (StorageInvalid("no", remedy="mend it"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_only_what_may_pass_is_tried_again(tmp_path: Path, failure: Exception, tries: int) -> None:
    tried = list[int]()

    @tool(retry=Retry(attempts=3, backoff=0))
    async def fetch() -> str:
        tried.append(1)
        raise failure

    async with agent_of(tmp_path, fetch) as agent:
        kind = TaskFailed if isinstance(failure, ConnectionError) else type(failure)
        with pytest.raises(kind):
            await asyncio.wait_for(agent.call("fetch", {}), BOUND)
    assert len(tried) == tries


async def test_each_try_has_the_whole_time_and_the_seconds_of_the_limits_hold_for_all(tmp_path: Path) -> None:
    clock, tries = VirtualClock(), list[float]()

    @tool(timeout=4, retry=Retry(attempts=20, backoff=1, longest=1), limits=Limits(seconds=12))
    async def fetch() -> str:
        tries.append(clock.monotonic())
        await asyncio.Event().wait()
        return ""

    async with agent_of(tmp_path, fetch, clock=clock) as agent:
        running = asyncio.ensure_future(agent.call("fetch", {}))
        for _ in range(12):
            await clock.advance(1)
        with pytest.raises(LimitReached, match="'fetch' reached its limit of 12 s"):
            await asyncio.wait_for(running, BOUND)
    assert tries == [0, 5, 10]


# --- depth ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 20])
async def test_how_deep_calls_nest_is_a_setting_up_to_20(tmp_path: Path, depth: int) -> None:
    made = list[int]()

    @flow
    async def deeper(ctx: CallContext, level: int) -> int:
        made.append(level)
        return int(await ctx.call("deeper", {"level": level + 1}))

    async with agent_of(tmp_path, deeper, settings={"turn_depth": depth}) as agent:
        with pytest.raises(DepthExceeded, match=f"is nested {depth + 1} deep, and the limit is {depth}"):
            await agent.call("deeper", {"level": 1})
    assert made == list(range(1, depth + 1))
