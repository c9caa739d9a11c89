"""Threads to branch: what they say, and how many rows a database has."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from pathlib import Path
from typing import Any

from worldagent.agent import Thread
from worldagent.testing import ScriptedCall, ScriptedLM


def counting() -> ScriptedLM:
    """A model whose answers are `a1`, `a2` and so on, and whose workers say `done`."""
    numbers = itertools.count(1)

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "done"} if "request" in call.fields else {"reply": f"a{next(numbers)}", "calls": []}

    return ScriptedLM(reply)


async def said(thread: Thread) -> list[str]:
    """What was said on a thread, page by page, each message by its text or its kind."""
    found: list[str] = []
    before: str | None = None
    while page := await thread.history(before=before, limit=3):
        found = [str(message.body.get("text", message.kind)) for message in page] + found
        before = page[0].id
    return found


async def ids(thread: Thread) -> list[str]:
    """The ids of its messages."""
    return [message.id for message in await thread.history(limit=1000)]


def row_counts(home: Path) -> dict[str, int]:
    """How many rows each table of the agent's database has."""
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import rows

        names = rows(url, "SELECT tablename FROM pg_tables WHERE schemaname='public'")
        return {name: rows(url, f"SELECT count(*) FROM {name}")[0][0] for (name,) in names}
    with contextlib.closing(sqlite3.connect(home / "agent.db")) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in names}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """By how many rows tables grew."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
