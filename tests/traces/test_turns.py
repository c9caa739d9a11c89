"""The trace of a turn has what it did: calls, tasks, model calls, approvals, errors, each in its place (H5)."""

import ast
import asyncio
import inspect
import json
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from support.agents import CRITIC, Said, answering, asks_the_critic, scripted_agent
from support.leaks import Kept
from support.pages import DOCS, blocks, rows
from support.shop import Order
from worldagent import Role
from worldagent.core import summed
from worldagent.core.errors import TraceInvalid, WorldAgentError
from worldagent.core.pauses import Approve, call_id_of
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, flow, tool
from worldagent.harness.trace import Captured, Trace, TraceRecord, TurnTrace, read_trace
from worldagent.harness.trace.records import FORMAT, HEADER, RecordKind, TraceNode
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("H5")


@tool(risk="read_only")
async def look(what: str) -> str:
    return f"looked at the {what}"


@tool(approval=True)
async def pay(what: str) -> str:
    return f"paid for the {what}"


@tool(risk="read_only")
async def stumble(what: str) -> str:
    raise RuntimeError("a secret that only this test knows")


@flow
async def search(ctx: CallContext, what: str) -> str:
    first = await ctx.call("look", {"what": what})
    return f"{first}, {await ctx.call('look', {'what': f'other {what}'})}"


async def _shop(params: Order, ctx: TaskContext) -> Said:
    await ctx.call("search", {"what": params.what})
    return Said(text=await ctx.call("pay", {"what": params.what}))


SHOP = Shape("shop", Order, Said, _shop)


def drawn(node: TraceNode) -> list[Any]:
    """A tree as nested lists: kind and name of each, and of what lasts how it ended."""
    record = node.record
    ended = "+".join(run.status for run in node.runs) if record.lasts else record.status
    return [" ".join(filter(None, (record.kind, record.name, ended))), *(drawn(child) for child in node.children)]


def records_of(trace: TurnTrace, kind: str) -> list[TraceRecord]:
    return [record for record in trace.records if record.kind == kind]


async def test_a_turn_is_a_tree_of_what_it_did_with_its_tokens(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(asks_the_critic), workers=[CRITIC]) as agent:
        turn = await agent.thread("t1", account="ana", channel="c1").converse("Hello", role=Role("x", "Be brief."))
        trace = await agent.traces.get(turn.id)
        listed = await agent.traces.list()
    path = f"{turn.id}/step.0.0:critic"
    assert drawn(trace.tree()) == [
        "turn message done",
        ["model Converse done"],
        ["task subagent done", ["model critic done"]],
        ["model Converse done"],
    ]
    [task] = records_of(trace, "task")
    assert (task.id, task.parent, task.label) == (path, turn.id, "critic")
    models = records_of(trace, "model")
    assert [model.parent for model in models] == [turn.id, path, turn.id]
    assert {model.model for model in models} == {"scripted"}
    assert (trace.input_tokens, trace.output_tokens, trace.models) == (
        turn.usage.input_tokens,
        turn.usage.output_tokens,
        turn.usage.calls,
    )
    assert trace.input_tokens == summed(model.input_tokens for model in models) == trace.tree().tokens[0]
    assert (trace.cost, trace.unpriced) == (None, 3)
    assert (trace.thread, trace.account, trace.workspace, trace.status) == ("t1", "ana", "novel", "done")
    [run] = records_of(trace, "turn")
    assert (run.role_tiers, run.channel) == (("call",), "c1")
    for record in trace.records:
        assert record.end is not None
        assert run.start <= record.start <= record.end <= (run.end or record.end)
    assert [each.id for each in listed] == [turn.id]
    assert listed[0].records == ()


async def test_a_call_outside_any_turn_has_a_trace_of_its_own(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), tools=[look, search, stumble]) as agent:
        await agent.call("search", {"what": "hat"}, account="ana")
        with pytest.raises(WorldAgentError):
            await agent.call("stumble", {"what": "hat"})
        failed, done = await agent.traces.list()
        traces = [await agent.traces.get(each.id) for each in (failed, done)]
    assert drawn(traces[1].tree()) == [
        "turn call done",
        ["call search done", ["call look done"], ["call look done"]],
    ]
    assert (done.name, done.account, done.thread) == ("call", "ana", "")
    assert drawn(traces[0].tree()) == ["turn call failed", ["call stumble failed", ["error stumble"]], ["error call"]]
    assert {record.code for record in records_of(traces[0], "error")} == {"task_failed"}
    [look_one, _] = [record for record in traces[1].records if record.name == "look"]
    assert (look_one.risk, look_one.gate) == (("read_only",), "code")


async def test_resumed_turn_continues_its_trace(tmp_path: Path) -> None:
    def shop() -> Any:
        return scripted_agent(
            tmp_path,
            answering(),
            tools=[look, pay, search],
            shapes=[SHOP],
            trace=Trace.to(tmp_path / "both.jsonl"),
        )

    async with shop() as agent:
        turn = await agent.thread("t1", account="ana").task("shop", {"what": "hat"})
        assert turn.status == "paused"
        paused = await agent.traces.get(turn.id)
    async with shop() as agent:
        await agent.thread("t1").resume({turn.pauses[0].id: Approve()})
        trace = await agent.traces.get(turn.id)
        [listed] = await agent.traces.list(thread="t1")
    asked, opened = "approval pay ask", "pause pay opened"
    assert (paused.status, paused.runs) == ("paused", 1)
    below = ["call search done", ["call look done"], ["call look done"]]
    assert drawn(paused.tree())[1][:3] == ["task shop paused", below, [asked]]
    tree = drawn(trace.tree())
    assert tree[0] == "turn task paused+done"
    [task] = tree[1:]
    assert task[0] == "task shop paused+done"
    assert below in task
    [call] = [each for each in task[1:] if each[0].startswith("call pay")]
    assert call == ["call pay done", [asked], [opened], ["pause closed"], ["approval pay approve"]]
    approvals = records_of(trace, "approval")
    assert [(each.status, each.gate) for each in approvals] == [("ask", "function"), ("approve", "person")]
    assert {each.call for each in approvals} == {call_id_of(turn.pauses[0].id)}
    assert (listed.runs, listed.status, listed.start) == (2, "done", trace.start)
    in_the_file = read_trace(tmp_path / "both.jsonl")
    assert in_the_file.skipped == ()
    assert TurnTrace.of(in_the_file.records) == trace


async def test_nothing_that_was_said_is_in_a_trace(tmp_path: Path) -> None:
    kept = Kept()
    agent = scripted_agent(tmp_path, answering("An answer of the model."), tools=[look, pay], trace=kept)
    async with agent:
        await agent.thread("t1").converse("A word of a person.")
        await agent.call("look", {"what": "a thing of the host"})
    assert kept.closed == 1
    assert not [item for item in kept.items if isinstance(item.what, Captured)]
    seen = [repr(kept.items).encode(), *(file.read_bytes() for file in tmp_path.glob("traces.db*"))]
    for text in (b"An answer of", b"A word of", b"a thing of"):
        assert not [where for where in seen if text in where]
    assert b"turn_" in seen[1]


async def test_traces_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), trace=Trace.to(tmp_path / "own.jsonl")) as agent:
        await agent.thread("t1").converse("Hello")
    for name in ("traces.db", "own.jsonl"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


async def test_a_home_keeps_no_traces_where_the_setting_is_off(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), settings={"trace": False}) as agent:
        turn = await agent.thread("t1").converse("Hello")
        assert await agent.traces.list() == ()
        with pytest.raises(TraceInvalid, match="no trace of a turn"):
            await agent.traces.get(turn.id)
    assert not (tmp_path / "traces.db").exists()


async def test_trace_of_another_workspace_is_not_found(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        turn = await agent.thread("t1").converse("Hello")
        trace = await agent.traces.get(turn.id)
        agent.workspace = "other"
        with pytest.raises(TraceInvalid):
            await agent.traces.get(turn.id)
        assert await agent.traces.list() == ()
    assert trace.workspace == "novel"


async def test_old_traces_go_and_new_ones_stay(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), clock=clock, settings={"trace_age": 7200.0}) as agent:
        old = (await agent.thread("t1").converse("Hello")).id
        await clock.advance(3000)
        kept = (await agent.thread("t1").converse("Hello")).id
        assert [trace.id for trace in await agent.traces.list()] == [kept, old]
        await clock.advance(4300)
        new = (await agent.thread("t1").converse("Hello again")).id
        assert [trace.id for trace in await agent.traces.list()] == [new, kept]
        with pytest.raises(TraceInvalid, match="no trace of a turn"):
            await agent.traces.get(old)
    async with scripted_agent(tmp_path, answering(), clock=clock, settings={"trace_age": 1000.0}) as agent:
        last = (await agent.thread("t1").converse("Hello at last")).id
        assert [trace.id for trace in await agent.traces.list()] == [last, new]


async def test_many_old_traces_go_in_batches(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), clock=clock, settings={"trace_age": 7200.0}) as agent:
        await asyncio.gather(*(agent.thread(f"t{number}").converse("Hello") for number in range(130)))
        assert len(await agent.traces.list(limit=1000)) == 130
        await clock.advance(8000)
        left: list[int] = []
        for _ in range(3):
            await agent.thread("new").converse("Hello")
            left.append(len(await agent.traces.list(limit=1000)))
    assert left == [31, 2, 3]


PAGE = DOCS / "guides" / "traces.md"


def test_the_tables_of_the_format_are_those_of_the_code() -> None:
    assert [row.split("`")[1] for row in rows(PAGE, "kind")] == [*get_args(RecordKind)]
    [made] = ast.parse(inspect.getsource(TraceRecord)).body
    assert isinstance(made, ast.ClassDef)
    said = {
        ast.unparse(field.target): inspect.cleandoc(ast.literal_eval(about.value)).replace("\n", " ")
        for field, about in pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(about, ast.Expr)
    }
    assert said.keys() == TraceRecord.model_fields.keys()
    texts = {name: about.rstrip(".") for name, about in said.items()}
    shown = {name: about if about[1].isupper() else about[0].lower() + about[1:] for name, about in texts.items()}
    assert rows(PAGE, "field") == [f"| `{name}` | {about} |" for name, about in shown.items()]


def test_the_line_that_the_page_shows_is_a_record() -> None:
    [line] = [line for block in blocks("jsonl") if block.page == PAGE for line in block.code.splitlines()]
    assert TraceRecord.model_validate_json(line).line() == line
    assert json.loads(HEADER) == {"format": FORMAT}
    assert f"`{HEADER}`" in PAGE.read_text(encoding="utf-8")
