"""How a call ends that its body would rather not: by the process's end, or by going on after it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio._backends._asyncio import WorkerThread

from support.agents import failure, scripted_agent, shape
from support.steps import effects, flow_of, turns_of
from worldagent.core.errors import FunctionInvalid, TaskFailed, ThreadUnavailable
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Worker, flow, tool
from worldagent.harness.inside import without_exit
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("H4"), pytest.mark.timeout(120)]


class Own(BaseException):
    """One that is no `Exception`."""


RAISES: dict[str, type[BaseException]] = {"exit": SystemExit, "own": Own, "generator": GeneratorExit}


def stopping(what: str, *, kind: str) -> dict[str, Any]:
    @tool(name="stop", risk="read_only")
    async def stop() -> str:
        raise RAISES[what]()

    @tool(name="stop", risk="read_only")
    def on_a_thread() -> str:
        raise RAISES[what]()

    @flow(name="stop")
    async def flowing(ctx: CallContext) -> str:
        raise RAISES[what]()

    async def handler(ctx: TaskContext) -> str:
        raise RAISES[what]()

    if kind == "shape":
        return {"shapes": [shape(handler, "stop")]}
    return {"tools": [{"tool": stop, "thread": on_a_thread, "flow": flowing}[kind]]}


@pytest.mark.parametrize(
    ("kind", "what"), [("tool", "exit"), ("thread", "exit"), ("flow", "own"), ("shape", "generator")]
)
async def test_a_body_that_wants_the_process_to_end_fails_its_call_alone(tmp_path: Path, what: str, kind: str) -> None:
    originals: list[BaseException] = []
    lm = ScriptedLM([{"calls": [{"tool": "stop", "arguments": {}}]}, {"result": "went on"}])
    worker = Worker("w", "You do as you are told.", tools=("*",))
    more = stopping(what, kind=kind)
    async with scripted_agent(tmp_path, lm, workers=[worker], on_error=originals.append, **more) as agent:
        turn = await agent.thread("t").task("subagent", {"worker": "w", "request": "go"})
        assert turn.status == "done"
        assert "went on" in turn.text
        error = await failure(agent.call("stop", {}))
        assert isinstance(error, TaskFailed)
        assert RAISES[what].__name__ in error.problem
    assert [type(each) for each in originals] == [RAISES[what]] * 2


async def test_a_body_without_a_thread_did_not_run_and_runs_when_the_turn_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    @tool(risk="write")
    def put(text: str) -> str:
        done.append(text)
        if text == "raises":
            raise RuntimeError("can't start new thread")
        return text

    async def handler(ctx: TaskContext) -> str:
        return str(await ctx.call("put", {"text": "effect"}))

    def exhausted(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[put], shapes=[shape(handler, "job")]) as agent:
        with monkeypatch.context() as patched:
            patched.setattr(WorkerThread, "start", exhausted)
            with pytest.raises(ThreadUnavailable) as caught:
                await agent.thread("t").task("job", {})
        assert (caught.value.retryable, caught.value.__context__, done) == (True, None, [])
        assert (await agent.thread("t").resume()).status == "done"
        with pytest.raises(TaskFailed):  # an error of the body's own stays one
            await agent.call("put", {"text": "raises"})
    assert done == ["effect", "raises"]


async def test_sys_exit_of_an_approver_does_not_end_the_process(tmp_path: Path) -> None:
    @tool(risk="write")
    async def put() -> str:
        return "put"

    async def approver(pause: Any) -> Approve:
        sys.exit(3)

    lm = ScriptedLM([{"calls": [{"tool": "put", "arguments": {}}]}, {"result": "went on"}])
    worker = Worker("w", "You do as you are told.", tools=("*",))
    async with scripted_agent(tmp_path, lm, workers=[worker], tools=[put], approver=approver) as agent:
        turn = await agent.thread("t").task("subagent", {"worker": "w", "request": "go"})
        assert turn.status == "paused"
        assert [pause.function for pause in turn.pauses] == ["put"]


async def test_a_context_calls_nothing_once_its_call_is_over(tmp_path: Path) -> None:
    kept: list[Any] = []
    done: list[str] = []

    @tool(risk="write")
    async def put() -> str:
        done.append("put")
        return "put"

    @flow
    async def keep(ctx: CallContext) -> str:
        kept.append(ctx)
        return "kept"

    async def handler(ctx: TaskContext) -> str:
        kept.append(ctx)
        return "kept"

    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[put, keep], shapes=[shape(handler)]) as agent:
        await agent.call("keep", {})
        await agent.thread("t").task("job", {})
        assert len(kept) == 2
        for ctx in kept:
            running = asyncio.ensure_future(ctx.call("put", {}))
            await asyncio.wait([running], timeout=30)
            assert not running.cancelled()
            error = running.exception()
            assert isinstance(error, FunctionInvalid)
            assert "is over" in error.problem
    assert done == []


async def test_closing_an_abandoned_body_is_not_an_exit() -> None:
    running = without_exit(asyncio.sleep(60))

    async def begin() -> None:
        running.send(None)

    await asyncio.create_task(begin())
    running.close()


async def test_cancellation_while_a_suspended_body_is_ended_is_raised(tmp_path: Path) -> None:
    ending = asyncio.Event()

    async def main(ctx: CallContext) -> Any:
        try:
            await ctx.call("write", {"what": "x"})
        except asyncio.CancelledError:
            ending.set()
            await asyncio.Event().wait()

    async with turns_of(tmp_path, effects([], approval=True), flow_of(main)) as turns:
        running = asyncio.create_task(turns.drive("main", {}))
        await ending.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
