"""Many threads with a turn that waits: going on with one of them costs what it costs with one thread alone (T4)."""

from __future__ import annotations

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


class Statements:
    """Every statement that any SQLite connection of this process runs while it is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.looking = False
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect

        def traced(*args: Any, **more: Any) -> sqlite3.Connection:
            connection = connect(*args, **more)
            if Path(args[0]).name != "traces.db":  # those are written beside the turn, when there is time
                connection.set_trace_callback(self._note)
            return connection

        monkeypatch.setattr(sqlite3, "connect", traced)

    def _note(self, statement: str) -> None:
        # What another process wants cancelled is looked for by the clock, not by the turn.
        if self.looking and "cancel=1 AND" not in statement:
            self.seen.append(" ".join(statement.split()))

    def take(self) -> list[str]:
        taken, self.seen = self.seen, []
        return taken


async def statements_of_a_resume(home: Path, count: int, statements: Statements) -> dict[str, list[str]]:
    """What is run for a resume that pauses again, one that ends the turn, and a look at what waits."""
    found: dict[str, list[str]] = {}
    shapes = [Shape("buy", Nothing, Said, buy)]
    async with scripted_agent(home, answering(), tools=[tool(approval=True)(pay)], shapes=shapes) as agent:
        turns = [await agent.thread(f"t{number}").task("buy", {}) for number in range(count)]
        thread, pause = agent.thread(f"t{count // 2}"), turns[count // 2].pauses[0].id
        statements.looking = True
        statements.take()
        assert [each.id for each in await thread.pauses()] == [pause]
        found["pauses"] = statements.take()
        turn = await thread.resume({pause: Approve()})
        found["resume"] = statements.take()
        assert turn.status == "paused"
        turn = await thread.resume({turn.pauses[0].id: "red"})
        found["end"] = statements.take()
        assert turn.result == Said(text="paid for a hat, red")
        assert await agent.thread(f"t{count - 1}").cancel() == (count > 1)
        found["cancel"] = statements.take() if count > 1 else []
        statements.looking = False
    return found


@pytest.mark.requirement("T4")
async def test_a_resume_among_many_paused_threads_takes_the_statements_of_a_resume_alone_and_reads_by_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = Statements(monkeypatch)
    alone = await statements_of_a_resume(tmp_path / "alone", 1, statements)
    many = await statements_of_a_resume(tmp_path / "many", THREADS, statements)
    for what in ("pauses", "resume", "end"):
        assert len(alone[what]) > 0
        assert [shape(each) for each in many[what]] == [shape(each) for each in alone[what]], what
    everything = {each for taken in many.values() for each in taken}
    for table in ("wa_turn", "wa_call", "wa_message", "wa_epoch", "checkpoints", "writes"):
        assert any(table in each for each in everything), table
    with closing(sqlite3.connect(tmp_path / "many" / "agent.db")) as connection:
        for statement in everything:
            if statement.startswith(("SELECT", "UPDATE", "INSERT", "DELETE", "WITH")):
                plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                # A recursive query goes over its own rows, which are as many as it gives.
                scans = [step for step in plan if step.startswith("SCAN") and step not in ("SCAN page", "SCAN chain")]
                assert scans == [], statement


def shape(statement: str) -> str:
    """A statement without its values."""
    return re.sub(r"'(?:[^']|'')*'|x'[0-9a-fA-F]*'|\b\d[\d.e+-]*\b", "?", statement)
