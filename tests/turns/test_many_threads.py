"""Many threads with a turn that waits: nothing is read but what belongs to the one that resumes (T4)."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, answering, scripted_agent
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool

THREADS = 5  # as good as a thousand: SQLite plans without a look at the rows


async def pay(what: str) -> str:
    return f"paid for {what}"


async def buy(params: Nothing, ctx: TaskContext) -> Said:
    first = await ctx.call("pay", {"what": "a hat"})
    colour = await ctx.calls.ask_person("Which colour?", ["red", "blue"])
    return Said(text=f"{first}, {colour}")


@pytest.mark.requirement("T4")
async def test_resume_among_many_threads_reads_by_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def traced(path: Any, *args: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(path, *args, **more)
        if Path(path).name != "traces.db":  # those are written beside the turn, when there is time
            connection.set_trace_callback(seen.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    shapes = [Shape("buy", Nothing, Said, buy)]
    async with scripted_agent(tmp_path, answering(), tools=[tool(approval=True)(pay)], shapes=shapes) as agent:
        turns = [await agent.thread(f"t{number}").task("buy", {}) for number in range(THREADS)]
        seen.clear()
        thread = agent.thread("t2")
        [pause] = await thread.pauses()
        assert pause.id == turns[2].pauses[0].id
        turn = await thread.resume({pause.id: Approve()})
        turn = await thread.resume({turn.pauses[0].id: "red"})
        assert turn.result == Said(text="paid for a hat, red")
        assert await agent.thread("t3").cancel()
        statements = set(seen)
    for table in ("wa_turn", "wa_call", "wa_message", "wa_epoch", "checkpoints", "writes"):
        assert any(table in each for each in statements), table
    with closing(connect(tmp_path / "agent.db")) as connection:
        for statement in statements:
            # What another process wants cancelled is looked for by the clock, not by the turn.
            if re.match("SELECT|UPDATE|INSERT|DELETE|WITH", statement) and "cancel=1 AND" not in statement:
                plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                # A recursive query goes over its own rows, which are as many as it gives.
                scans = [step for step in plan if step.startswith("SCAN") and step not in ("SCAN page", "SCAN chain")]
                assert scans == [], statement
