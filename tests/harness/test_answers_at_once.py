"""Two who answer the same calls at once on Postgres, where transactions run side by side: one of them is late (T4)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import psycopg
import pytest

from support.postgres import new_database, rows
from support.processes import eventually
from worldagent.harness.journal import JOURNAL, CallRecord, SqlJournal
from worldagent.storage import EPOCHS, Database, PostgresAddress

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND wait_event_type='Lock'"
YES = {"kind": "answer", "value": "yes"}


def question(name: str) -> CallRecord:
    ask = '{"kind": "question", "question": "Is it?"}'
    return CallRecord(
        id=f"turn/{name}", turn="turn", parent="turn", name="ask_person", kind="question", hash="0", state="waiting",
        epoch=1, at=0.0, ask=ask,
    )  # fmt: skip


@pytest.mark.requirement("T4")
async def test_who_answers_while_another_does_waits_for_it_and_is_told_what_is_answered() -> None:
    url = new_database()
    async with aclosing(await Database.open(PostgresAddress(url), schemas=[EPOCHS, JOURNAL])) as database:
        journal = SqlJournal(database)
        await journal.put([question("a"), question("b")], lease=None)
        with psycopg.connect(url) as other:
            other.execute('UPDATE wa_call SET decision=\'{"kind": "answer", "value": "no"}\' WHERE id=\'turn/b\'')
            late = asyncio.create_task(journal.answer("turn", {"turn/b": YES, "turn/a": YES}))
            assert await eventually(lambda: rows(url, WAITING) == [(1,)]), "it did not wait"
            other.commit()
        assert await late == ("turn/b",)
        found = await journal.load("turn")
        assert {name: record.decided for name, record in found.items()} == {
            "turn/a": None,
            "turn/b": {"kind": "answer", "value": "no"},
        }
        assert await journal.answer("turn", {"turn/a": YES}) == ()
        assert await journal.answer("turn", {"turn/a": YES, "turn/c": YES}) == ("turn/a", "turn/c")
