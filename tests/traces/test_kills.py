"""What was written before kill -9 is readable, and the resumed turn continues its trace (H5, T5)."""

import asyncio
from pathlib import Path

import pytest

from support.agents import Said, answering, scripted_agent
from support.processes import call_of, killed, start_script, wait_for_kill
from support.shop import Order
from traces.test_turns import records_of
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, tool
from worldagent.harness.trace import Trace, read_trace


def job(home: Path) -> tuple[list[Function], Shape[Order, Said]]:
    """What both processes run; the first one never comes to its end."""

    @tool(risk="read_only", idempotent=True)
    async def first(what: str) -> str:
        return what

    @tool(risk="read_only", idempotent=True)
    async def second(what: str) -> str:
        if not (home / "go").exists():
            await asyncio.sleep(0.3)  # longer than events are gathered
            await wait_for_kill()
        return what

    async def run(params: Order, ctx: TaskContext) -> Said:
        await ctx.call("first", {"what": params.what})
        return Said(text=await ctx.call("second", {"what": params.what}))

    return [first, second], Shape("job", Order, Said, run)


async def die(home: Path) -> None:
    functions, shape = job(home)
    trace = Trace.to(home / "t.jsonl")
    async with scripted_agent(home, answering(), tools=functions, shapes=[shape], trace=trace) as agent:
        await agent.thread("t1").task("job", {"what": "hat"})


@pytest.mark.requirement("H5", "T5")
async def test_trace_survives_a_kill_and_the_resume_continues_it(tmp_path: Path) -> None:
    await killed(await start_script(call_of(die, tmp_path)))
    functions, shape = job(tmp_path)
    (tmp_path / "go").touch()
    trace = Trace.to(tmp_path / "t.jsonl")
    async with scripted_agent(tmp_path, answering(), tools=functions, shapes=[shape], trace=trace) as agent:
        [listed] = await agent.traces.list()
        cut = await agent.traces.get(listed.id)
        assert (cut.status, cut.end, cut.runs) == ("running", None, 1)
        assert [(each.name, each.status) for each in records_of(cut, "call")] == [
            ("first", "done"),
            ("second", "running"),
        ]
        await agent.thread("t1").resume()
        whole = await agent.traces.get(listed.id)
    assert (whole.status, whole.runs, whole.id) == ("done", 2, cut.id)
    [task] = whole.tree().children
    assert [run.status for run in task.runs] == ["running", "done"]
    found = read_trace(tmp_path / "t.jsonl")
    assert found.skipped == ()
    assert {record.turn for record in found.records} == {cut.id}
