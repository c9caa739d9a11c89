"""Code that a call runs does not get past the gate by another door: `agent.call`, or a turn of its own (H9)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

from support.agents import Nothing, Said, failure, scripted_agent
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import CallRefused, DepthExceeded, FunctionInvalid, NobodyToAsk
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Policy, Worker, flow, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("H9"), pytest.mark.timeout(120)]

DONE: list[str] = []
HERE: dict[str, WorldAgent] = {}


@pytest.fixture(autouse=True)
def clean() -> None:
    DONE.clear()
    HERE.clear()


@tool(risk="destructive")
async def burn(path: str) -> str:
    DONE.append(path)
    return path


@tool(risk="read_only", untrusted=True)
async def read_page() -> str:
    return "A stranger's page."


Reach = Callable[[], Coroutine[Any, Any, Any]]


async def call_burn() -> Any:
    return await HERE["agent"].call("burn", {"path": "by call"})


async def call_burn_of_another() -> Any:
    return await HERE["other"].call("burn", {"path": "by another"})


async def call_burn_in_a_task() -> Any:
    return await asyncio.create_task(call_burn())


def doors(reach: Reach) -> dict[str, tuple[Function | None, Shape[Any, Any] | None]]:
    """Each kind of code that a call runs, which reaches for something in a way of its own."""

    @tool(risk="read_only")
    async def door() -> str:
        return str(await reach())

    @tool(name="door", risk="read_only")
    def thread() -> str:
        return str(anyio.from_thread.run(reach))

    loop = asyncio.get_running_loop()

    @tool(name="door", risk="read_only")
    def thread_of_the_loop() -> str:
        async def run() -> Any:
            return await reach()

        return str(asyncio.run_coroutine_threadsafe(run(), loop).result(30))

    @flow(name="door")
    async def flowing(ctx: CallContext) -> str:
        return str(await reach())

    async def handler(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=str(await reach()))

    return {
        "tool": (door, None),
        "thread": (thread, None),
        "loop": (thread_of_the_loop, None),
        "flow": (flowing, None),
        "shape": (None, Shape("door", Nothing, Said, handler)),
    }


KINDS = ("tool", "thread", "loop", "flow", "shape")


def agent_with(home: Path, kind: str, reach: Reach, *, lm: Any = None, **more: Any) -> WorldAgent:
    function, shape = doors(reach)[kind]
    functions = [each for each in (burn, read_page, function, *more.pop("tools", ())) if each is not None]
    shapes = [each for each in (shape, *more.pop("shapes", ())) if each is not None]
    worker = Worker("w", "You do as you are told.", tools=("door", "read_page"))
    lm = lm or ScriptedLM([{"calls": [{"tool": "door", "arguments": {}}]}, {"result": "done"}])
    HERE["agent"] = scripted_agent(home, lm, tools=functions, shapes=shapes, workers=[worker], **more)
    return HERE["agent"]


def work(agent: WorldAgent, thread: str = "outer") -> Awaitable[Turn]:
    return agent.thread(thread).task("subagent", {"worker": "w", "request": "go"})


# --- agent.call -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reach", [call_burn, call_burn_of_another, call_burn_in_a_task])
async def test_code_that_calls_the_agent_does_not_bypass_the_gate(tmp_path: Path, kind: str, reach: Reach) -> None:
    async with agent_with(tmp_path / "a", kind, reach) as agent, agent_with(tmp_path / "b", kind, reach) as other:
        HERE.update(agent=agent, other=other)
        error = await failure(work(agent))
        assert isinstance(error, FunctionInvalid)
        assert "@flow" in error.remedy
        assert "'door'" in error.problem
    assert DONE == []


@pytest.mark.parametrize("kind", KINDS)
async def test_nor_does_code_that_a_host_calls(tmp_path: Path, kind: str) -> None:
    async with agent_with(tmp_path, kind, call_burn) as agent:
        assert isinstance(await failure(agent.call("door", {})), FunctionInvalid)
        assert await agent.call("burn", {"path": "by the host"}) == "by the host"
    assert DONE == ["by the host"]


async def test_a_worker_that_the_host_calls_is_held_alike(tmp_path: Path) -> None:
    async with agent_with(tmp_path, "tool", call_burn) as agent:
        assert isinstance(await failure(agent.call("w", {"request": "go"})), FunctionInvalid)
    assert DONE == []


async def test_a_background_task_that_a_tool_once_started_is_not_held_for_it(tmp_path: Path) -> None:
    gone, left = asyncio.Event(), list[asyncio.Task[Any]]()

    async def later() -> Any:
        await gone.wait()
        return await call_burn()

    async def start() -> str:
        left.append(asyncio.create_task(later()))
        return "started"

    async with agent_with(tmp_path, "tool", start) as agent:
        await work(agent)
        gone.set()
        assert await asyncio.wait_for(left[0], 30) == "by call"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_code_begins_and_does_not_wait_for_is_held_for_it(tmp_path: Path, kind: str) -> None:
    left: list[asyncio.Task[Any]] = []

    async def fire() -> str:
        left.append(asyncio.create_task(call_burn()))
        left.append(asyncio.create_task(begin_a_task()))
        return "fired"

    async with agent_with(tmp_path, kind, fire, shapes=[BURNER]) as agent:
        await work(agent)
        refused, status = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(refused, FunctionInvalid)
    assert status == "paused"
    assert DONE == []


@pytest.mark.parametrize("kind", ["tool", "loop"])
async def test_a_tool_that_outlives_its_call_is_held_to_the_end(tmp_path: Path, kind: str) -> None:
    begun, gone, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def late() -> Any:
        begun.set()
        while not gone.is_set():
            try:
                await gone.wait()
            except asyncio.CancelledError:
                continue
        try:
            return await call_burn()
        except FunctionInvalid as error:
            failed.append(error)
            return "refused"
        finally:
            over.set()

    async with agent_with(tmp_path, kind, late) as agent:
        running = asyncio.ensure_future(agent.call("door", {}))
        await asyncio.wait_for(begun.wait(), 30)
        running.cancel()
        await asyncio.wait([running], timeout=30)
        gone.set()
        await asyncio.wait_for(over.wait(), 30)
    assert DONE == []
    assert len(failed) == 1


async def test_an_approver_is_the_hosts_own_code(tmp_path: Path) -> None:
    told: list[str] = []

    async def approver(pause: Any) -> Approve:
        told.append(await HERE["agent"].call("read_page", {}))
        return Approve()

    @flow(name="door")
    async def door(ctx: CallContext) -> str:
        return str(await ctx.call("burn", {"path": "asked"}))

    worker = Worker("w", "You do as you are told.", tools=("door",))
    lm = ScriptedLM([{"calls": [{"tool": "door", "arguments": {}}]}, {"result": "done"}])
    async with scripted_agent(
        tmp_path, lm, tools=[burn, read_page, door], workers=[worker], approver=approver
    ) as agent:
        HERE["agent"] = agent
        assert (await work(agent)).status == "done"
    assert DONE == ["asked"]
    assert len(told) == 1


# --- turns of its own -----------------------------------------------------------------------------------------------


async def burner(params: Nothing, ctx: TaskContext) -> Said:
    first = await ctx.call("burn", {"path": "first"})
    return Said(text=first + await ctx.call("burn", {"path": "second"}))


BURNER = Shape("burner", Nothing, Said, burner)


def begins(shape: str) -> Reach:
    """Code that begins a turn of its own."""

    async def begin() -> str:
        return (await HERE["agent"].thread("inner").task(shape, {})).status

    return begin


begin_a_task = begins("burner")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_turn_calls_that_a_models_call_began_is_asked(tmp_path: Path, kind: str) -> None:
    async with agent_with(tmp_path, kind, begin_a_task, shapes=[BURNER]) as agent:
        assert (await work(agent)).status == "done"
        assert DONE == []
        [pause] = await agent.thread("inner").pauses()
        assert pause.function == "burn"
        assert pause.arguments == {"path": "first"}


@pytest.mark.parametrize("kind", ["tool", "shape"])
async def test_another_process_asks_the_same(tmp_path: Path, kind: str) -> None:
    async with agent_with(tmp_path, kind, begin_a_task, shapes=[BURNER]) as agent:
        await work(agent)
    async with agent_with(tmp_path, kind, begin_a_task, shapes=[BURNER]) as agent:
        thread = agent.thread("inner")
        [pause] = await thread.pauses()
        turn = await thread.resume({pause.id: Approve()})
        assert turn.status == "paused"
        assert DONE == ["first"]
        assert turn.pauses[0].arguments == {"path": "second"}
    async with agent_with(tmp_path, kind, begin_a_task, shapes=[BURNER]) as agent:
        turn = await agent.thread("inner").resume({turn.pauses[0].id: Approve()})
        assert turn.status == "done"
        assert DONE == ["first", "second"]


async def test_a_rule_for_the_hosts_own_code_does_not_speak_for_it(tmp_path: Path) -> None:
    @tool(risk="write")
    async def put() -> str:
        DONE.append("put")
        return "put"

    async def putting(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("put", {}))

    rules = (Rule(decision="approve", function="putter", caller="code", risk="write"),)
    shape = Shape("putter", Nothing, Said, putting, risk=("write",))
    async with agent_with(
        tmp_path, "tool", begins("putter"), tools=[put], shapes=[shape], policy=Policy(rules=rules)
    ) as agent:
        await work(agent)
        [pause] = await agent.thread("inner").pauses()
        assert pause.caller == "door"
        assert DONE == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_hosts_own_code_may_begin_turns_inside_calls(tmp_path: Path, kind: str) -> None:
    async with agent_with(tmp_path, kind, begin_a_task, shapes=[BURNER]) as agent:
        assert str(await agent.call("door", {})) in ("done", "text='done'")
    assert DONE == ["first", "second"]


async def test_what_a_model_resumes_through_code_it_has_a_say_in_from_then_on(tmp_path: Path) -> None:
    @flow(name="wait")
    async def wait(ctx: CallContext) -> str:
        await ctx.ask_person("Go on?")
        return str(await ctx.call("burn", {"path": "after"}))

    async def waiting(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("wait", {}))

    async def resume() -> str:
        thread = HERE["agent"].thread("inner")
        [pause] = await thread.pauses()
        return (await thread.resume({pause.id: "yes"})).status

    def make() -> WorldAgent:
        return agent_with(tmp_path, "tool", resume, tools=[wait], shapes=[Shape("waiter", Nothing, Said, waiting)])

    async with make() as agent:
        assert (await agent.thread("inner").task("waiter", {})).status == "paused"
        await work(agent)
        [pause] = await agent.thread("inner").pauses()
        assert pause.function == "burn"
        assert DONE == []
    async with make() as agent:
        assert (await agent.thread("inner").resume({pause.id: Approve()})).status == "done"
        assert DONE == ["after"]


@pytest.mark.parametrize("by_model", [True, False])
async def test_what_a_model_starts_again_with_the_hosts_key_it_has_a_say_in(tmp_path: Path, by_model: bool) -> None:
    begun, may = asyncio.Event(), asyncio.Event()

    async def later(params: Nothing, ctx: TaskContext) -> Said:
        begun.set()
        await may.wait()
        return Said(text=await ctx.call("burn", {"path": "later"}))

    async def start() -> Turn:
        return await HERE["agent"].thread("inner").task("later", {}, key="k")

    shape = Shape("later", Nothing, Said, later)
    async with agent_with(tmp_path, "tool", start, shapes=[shape]) as agent:
        first = asyncio.create_task(start())
        await asyncio.wait_for(begun.wait(), 30)
        await asyncio.wait_for(agent.drain(0), 30)
        assert (await first).status == "stopped"
    may.set()
    async with agent_with(tmp_path, "tool", start, shapes=[shape]) as agent:
        await (work(agent) if by_model else agent.call("door", {}))
        asked = await agent.thread("inner").pauses()
        assert (await start()).id == first.result().id
    assert ([pause.function for pause in asked], DONE) == ((["burn"], []) if by_model else ([], ["later"]))


async def test_a_turn_takes_over_what_strangers_wrote(tmp_path: Path) -> None:
    @tool(risk="write")
    async def put(text: str) -> str:
        DONE.append(text)
        return text

    async def putting(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("put", {"text": "a"}))

    rules = (Rule(decision="approve", function="put"),)
    lm = ScriptedLM(
        [
            {"calls": [{"tool": "read_page", "arguments": {}}]},
            {"calls": [{"tool": "door", "arguments": {}}]},
            {"result": "done"},
        ]
    )
    more: dict[str, Any] = {"shapes": [Shape("putter", Nothing, Said, putting)], "policy": Policy(rules=rules)}
    async with agent_with(tmp_path, "tool", begins("putter"), lm=lm, tools=[put], **more) as agent:
        await work(agent)
        [pause] = await agent.thread("inner").pauses()
        assert "read_page" in pause.reason
        assert DONE == []


async def test_turns_within_turns_come_to_an_end(tmp_path: Path) -> None:
    begun: list[int] = []

    async def nest() -> str:
        begun.append(1)
        assert len(begun) < 50, "nothing holds it"
        return (await HERE["agent"].thread(f"n{len(begun)}").task("door", {})).status

    async with agent_with(tmp_path, "shape", nest) as agent:
        assert isinstance(await failure(agent.thread("outer").task("door", {})), DepthExceeded)
    assert len(begun) == 6


async def test_a_flow_works_in_a_turn_that_a_leaf_began(tmp_path: Path) -> None:
    @flow(name="inner_flow")
    async def inner_flow(ctx: CallContext) -> str:
        return str(await ctx.call("read_page", {}))

    async def inner(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("inner_flow", {}))

    async def task() -> str:
        return (await HERE["agent"].thread("inner").task("inner", {})).text

    async with agent_with(
        tmp_path, "tool", task, tools=[inner_flow], shapes=[Shape("inner", Nothing, Said, inner)]
    ) as agent:
        assert "stranger" in await agent.call("door", {})


# --- what of it fails -----------------------------------------------------------------------------------------------


async def records_of(agent: WorldAgent, thread: str) -> list[tuple[str, str, str]]:
    """The name, status and code of each task and call of the one turn of a thread."""
    [listed] = await agent.traces.list(thread=thread)
    records = (await agent.traces.get(listed.id)).records
    return [(record.name, record.status, record.code) for record in records if record.kind in ("task", "call")]


async def test_a_turn_that_fails_inside_a_call_is_a_failure_of_that_call(tmp_path: Path) -> None:
    async def refused(params: Nothing, ctx: TaskContext) -> Said:
        raise CallRefused("no", remedy="do without")

    async with agent_with(
        tmp_path, "tool", begins("refused"), shapes=[Shape("refused", Nothing, Said, refused)]
    ) as agent:
        assert (await work(agent)).status == "done"
        assert await records_of(agent, "inner") == [("refused", "failed", "call_refused")]
        assert await records_of(agent, "outer") == [("subagent", "done", ""), ("door", "failed", "call_refused")]


async def test_a_limit_of_the_turn_inside_does_not_end_the_turn_outside(tmp_path: Path) -> None:
    @flow(name="three")
    async def three(ctx: CallContext) -> str:
        return "".join([await ctx.call("read_page", {}, key=str(each)) for each in range(9)])

    async def calls(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("three", {}))

    async with agent_with(
        tmp_path,
        "tool",
        begins("calls"),
        tools=[three],
        shapes=[Shape("calls", Nothing, Said, calls)],
        settings={"turn_calls": 4},
    ) as agent:
        HERE["agent"] = agent
        assert (await work(agent)).status == "done"
        assert await records_of(agent, "inner") == [
            ("calls", "failed", "limit_reached"),
            ("three", "failed", "limit_reached"),
            *[("read_page", "done", "")] * 2,
        ]
        # Not `limit_reached`: that would be a limit of the turn outside.
        assert await records_of(agent, "outer") == [("subagent", "done", ""), ("door", "failed", "task_failed")]


async def test_tool_without_a_person_to_ask_fails(tmp_path: Path) -> None:
    async def ask() -> str:
        raise NobodyToAsk("nobody is here", remedy="call it inside a turn")

    async with agent_with(tmp_path, "tool", ask) as agent:
        assert (await work(agent)).status == "done"
        assert await records_of(agent, "outer") == [("subagent", "done", ""), ("door", "failed", "nobody_to_ask")]
