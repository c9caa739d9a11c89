"""Runs, calls, traces and threads that are older than an age go, in batches, and nothing that a turn can need (D10)."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.command_line import Run, home, refusal, run
from support.homes import PNG, change, pieces, rows, selected
from worldagent import WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.agent.upkeep import PrunedByAge
from worldagent.core import utc_text
from worldagent.core.errors import InvalidArgument, StorageUnavailable
from worldagent.core.pauses import Approve
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T4")

DAY = 86_400.0
MANY_ROWS = 200_000
_RUN = """INSERT INTO wa_schedule_run(workspace, schedule, slot, status, at, turn, note)
          VALUES(?, ?, ?, ?, ?, NULL, NULL)"""


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look at a thing."""
    return f"{what} is blue"


@tool(risk="destructive")
async def burn(what: str) -> str:
    """Burn a thing."""
    return f"{what} is gone"


def _reply(call: ScriptedCall) -> dict[str, Any]:
    said = call.fields.get("message", "")
    if "fail" in said:
        raise RuntimeError("the model fails")
    for name in ("look", "burn"):
        if name in said and "blue" not in call.text and "gone" not in call.text:
            return {"reply": "", "calls": [{"tool": name, "arguments": {"what": "it"}}]}
    return {"reply": "Fine.", "calls": []}


def opened(home: Path, clock: VirtualClock) -> WorldAgent:
    tools = [look, burn]
    return scripted_agent(home, ScriptedLM(_reply), tools=tools, settings={"trace_age": None}, clock=clock)


async def add_runs(agent: WorldAgent, count: int, *, days_ago: float, status: str = "done", name: str = "tide") -> None:
    at = inside(agent).clock.now() - timedelta(days=days_ago)
    slots = (utc_text(at + timedelta(seconds=number)) for number in range(count))
    await change(agent, _RUN, *((agent.workspace, name, slot, status, slot) for slot in slots))


@pytest.mark.on_every_database
async def test_runs_that_are_over_go_by_age(tmp_path: Path) -> None:
    async with opened(tmp_path, VirtualClock()) as agent:
        await add_runs(agent, 1200, days_ago=40)
        await add_runs(agent, 30, days_ago=40, name="wind", status="skipped")
        for status in ("due", "started", "paused"):
            await add_runs(agent, 1, days_ago=40, name=status, status=status)
        await add_runs(agent, 7, days_ago=1)
        steps: list[tuple[str, int, int]] = []
        dry = await agent.upkeep.prune_by_age(runs=30 * DAY, dry_run=True)
        assert dry == PrunedByAge(runs=1230, calls=0, traces=0, threads=0, dry_run=True)
        assert await rows(agent, "wa_schedule_run") == 1240
        found = await agent.upkeep.prune_by_age(runs=30 * DAY, progress=lambda *step: steps.append(step))
        assert found == PrunedByAge(runs=1230, calls=0, traces=0, threads=0)
        assert steps == [("runs", 500, 1230), ("runs", 1000, 1230), ("runs", 1230, 1230)]
        left = await selected(agent, "SELECT status, COUNT(*) FROM wa_schedule_run GROUP BY status ORDER BY status")
        assert left == [("done", 7), ("due", 1), ("paused", 1), ("started", 1)]
        assert (await agent.upkeep.prune_by_age(runs=30 * DAY)).runs == 0


@pytest.mark.on_every_database
@pytest.mark.requirement("T5")
async def test_calls_go_with_the_age_of_their_turn_but_not_those_that_a_turn_can_need(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock) as agent:
        for number in range(60):  # more than a batch
            await agent.thread(f"t{number}").converse("look")
        paused = await agent.thread("p").converse("burn it")
        with pytest.raises(Exception, match="model"):
            await agent.thread("f").converse("look, then fail")
        before = await rows(agent, "wa_call")
        await clock.advance(40 * DAY)
        await agent.thread("young").converse("look")
        assert (await agent.upkeep.prune_by_age(calls=30 * DAY, dry_run=True)).calls == 120
        assert (await agent.upkeep.prune_by_age(calls=30 * DAY)).calls == 120
        assert await rows(agent, "wa_call") == before - 120 + 2
        assert len(await agent.thread("t0").history()) == 4
        await agent.thread("t0").converse("And now?")
        await agent.thread("p").resume({paused.pauses[0].id: Approve()})
        assert (await agent.upkeep.prune_by_age(calls=30 * DAY)).calls == 0, "it has just ended"


@pytest.mark.on_every_database
@pytest.mark.requirement("T5")
async def test_threads_that_ended_go_and_those_that_can_go_on_stay(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock) as agent:
        for number in range(5):
            await agent.thread(f"old {number}/ü").converse("Look.", attachments=[PNG])
        await agent.thread("p").converse("burn it")
        with pytest.raises(Exception, match="model"):
            await agent.thread("f").converse("fail")
        await agent.thread("c").converse("burn it")
        await agent.thread("c").cancel()
        await agent.thread("old 0/ü").fork(to="fork")
        await clock.advance(40 * DAY)
        await agent.thread("old 1/ü").converse("still here")
        dry = await agent.upkeep.prune_by_age(threads=30 * DAY, traces=30 * DAY, dry_run=True)
        assert (dry.threads, dry.traces, dry.left) == (6, 8, 0)
        found = await agent.upkeep.prune_by_age(threads=30 * DAY)
        assert (found.threads, found.left, found.attachments) == (6, 0, 0)
        assert sorted([each.thread for each in await agent.threads()]) == ["fork", "old 1/ü", "p"]
        assert len(await agent.thread("fork").history()) == 2, "what a fork shares stays with it"
        assert [trace.thread for trace in await agent.traces.list()] == ["old 1/ü", "p", "old 1/ü"]
        assert (await agent.upkeep.prune_by_age(traces=30 * DAY)).traces == 2
        await agent.upkeep.remove("fork")
        await clock.advance(40 * DAY)
        assert (await agent.upkeep.prune_by_age(threads=30 * DAY)).attachments == 1
        assert [each.thread for each in await agent.threads()] == ["p"]
    assert pieces(tmp_path) == {}


async def test_a_thread_that_a_turn_takes_up_meanwhile_is_left(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock) as agent:
        for name in ("a", "b"):
            await agent.thread(name).converse("Hello")
        await clock.advance(40 * DAY)

        async with agent._runner.parts.stores.leases.hold("novel/a", wait=0):
            found = await agent.upkeep.prune_by_age(threads=30 * DAY)
        assert (found.threads, found.left) == (1, 1)
        assert [each.thread for each in await agent.threads()] == ["a"]


@pytest.mark.on_every_database
async def test_a_failure_in_between_has_removed_complete_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, VirtualClock()) as agent:
        await add_runs(agent, 1200, days_ago=40)

        def failing(part: str, done: int, total: int) -> None:
            if done == 1000:
                raise StorageUnavailable("the disk is gone", remedy="bring it back")

        with pytest.raises(StorageUnavailable):
            await agent.upkeep.prune_by_age(runs=DAY, progress=failing)
        assert await rows(agent, "wa_schedule_run") == 200
        assert (await agent.upkeep.prune_by_age(runs=DAY)).runs == 200


@pytest.mark.soak
@pytest.mark.on_every_database
async def test_turns_continue_while_many_rows_go(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock) as agent:
        turn = await agent.thread("t").converse("look")
        [(row,), _] = await selected(agent, "SELECT id FROM wa_call WHERE turn=? ORDER BY id", turn.id)
        copying = """INSERT INTO wa_call(id, turn, parent, name, kind, hash, state, epoch, at, result)
                     SELECT ?, turn, parent, name, kind, hash, state, epoch, at, ? FROM wa_call WHERE id=?"""
        await change(agent, copying, *((f"{turn.id}/{n}", "x" * 200, row) for n in range(MANY_ROWS // 20)))
        await add_runs(agent, MANY_ROWS, days_ago=40)
        await clock.advance(40 * DAY)
        pruning = asyncio.ensure_future(agent.upkeep.prune_by_age(runs=DAY, calls=DAY, threads=DAY))
        between = 0
        while not pruning.done():
            await agent.thread("u").converse("Hello")
            between += 1
        found = await pruning
    assert (found.runs, found.calls, found.threads) == (MANY_ROWS, MANY_ROWS // 20 + 2, 1)
    assert between > 20, "turns had to wait for it"


async def test_bad_ages_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, VirtualClock()) as agent:
        given: list[tuple[dict[str, Any], str]] = [
            ({}, "nothing to remove: no age is given; give an age"),
            ({"runs": -1}, "`runs` must be seconds from 0 to 315360000, got -1"),
            ({"calls": True}, "`calls` must be seconds"),
            ({"threads": "1d"}, "`threads` must be seconds"),
            ({"traces": float("nan")}, "`traces` must be seconds"),
        ]
        for ages, problem in given:
            with pytest.raises(InvalidArgument, match=problem):
                await agent.upkeep.prune_by_age(**ages)


async def test_the_command_counts_removes_and_reports(run: Run, home: Path) -> None:
    async with scripted_agent(home, ScriptedLM(_reply), tools=[look]) as agent:
        agent.workspace = "default"
        await agent.thread("t").converse("look")
        await add_runs(agent, 700, days_ago=40)
    refused = await refusal(run, "prune")
    assert refused["code"] == "invalid_argument"
    assert (await run("prune", "--runs", "-1")).exit_code == 2
    dry = await run("prune", "--runs", "86400", "--threads", "0", "--dry-run", "--json")
    assert json.loads(dry.stdout)["pruned"] == {
        **{"runs": 700, "calls": 0, "traces": 0, "threads": 1, "left": 0, "attachments": 0, "dry_run": True},
        **dict.fromkeys(("briefs", "events", "messages", "outcomes", "steps"), 0),
    }
    removed = await run("prune", "--runs", "86400", "--calls", "0", "--traces", "0", "--threads", "0")
    assert removed.exit_code == 0, removed.output
    assert removed.stderr.splitlines() == [
        "runs: 700 of 700",
        "calls: 2 of 2",
        "traces: 1 of 1",
        "threads: 1 of 1",
        "removed 700 runs, 2 calls, 1 trace, 1 thread",
    ]
    again = json.loads((await run("prune", "--runs", "0", "--threads", "0", "--json")).stdout)["pruned"]
    assert (again["runs"], again["threads"]) == (0, 0)
