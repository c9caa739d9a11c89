"""One database, whichever engine: open, transact, read, close, and what goes wrong. Files: `test_sqlite`."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.databases import NOTES, NOTES_2, add, texts, word
from support.processes import run_script
from worldagent.core.errors import AgentClosed, InvalidArgument, SchemaTooNew
from worldagent.storage import Database, PostgresAddress, Schema, Transaction

Place = Path | PostgresAddress


@pytest.fixture
async def database(place: Place) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.open(place, schemas=[NOTES])) as opened:
        yield opened


async def test_work_that_raises_writes_nothing_and_its_error_comes_out(database: Database) -> None:
    def work(transaction: Transaction) -> None:
        add("one", transaction)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.transact(work)
    assert await database.read(texts) == []
    await database.transact(lambda tx: add("two", tx))
    assert await database.read(texts) == ["two"]


async def test_a_text_that_utf8_cannot_hold_is_refused_and_not_repeated(database: Database) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await database.transact(lambda tx: add("secret \ud800", tx))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.ReadOnlySqlTransaction), match=r"read-?only"):
        await database.read(lambda tx: add("one", tx))
    assert await database.read(texts) == []


async def test_a_read_sees_no_half_of_a_transaction_and_one_snapshot_throughout(database: Database) -> None:
    half_done, go_on, first_read = threading.Event(), threading.Event(), threading.Event()

    def write(transaction: Transaction) -> None:
        add("one", transaction)
        half_done.set()
        assert go_on.wait(10)
        add("two", transaction)

    def look_twice(transaction: Transaction) -> tuple[list[str], list[str]]:
        assert half_done.wait(10)
        before = texts(transaction)
        go_on.set()
        assert first_read.wait(10)
        return before, texts(transaction)

    writing = asyncio.create_task(database.transact(write))
    reading = asyncio.create_task(database.read(look_twice))
    await writing
    first_read.set()
    assert await reading == ([], [])
    assert await database.read(texts) == ["one", "two"]


async def test_a_cancelled_caller_waits_for_its_transaction_which_is_whole(database: Database) -> None:
    started, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(transaction: Transaction) -> None:
        add("one", transaction)
        loop.call_soon_threadsafe(started.set)
        assert go_on.wait(10)
        add("two", transaction)

    task = asyncio.create_task(database.transact(work))
    await started.wait()
    task.cancel()
    _, pending = await asyncio.wait({task}, timeout=0.05)
    assert pending, "the cancellation came through while the transaction was under way"
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await database.read(texts) == ["one", "two"]


async def test_after_close_every_use_is_refused_and_closing_again_is_nothing(place: Place, tmp_path: Path) -> None:
    database = await Database.open(place, schemas=[NOTES])
    locks = database.locks(tmp_path / "locks")
    last = asyncio.create_task(database.transact(lambda tx: add("last", tx)))
    await asyncio.sleep(0)
    await asyncio.gather(database.aclose(), database.aclose())
    await last
    await database.aclose()
    uses: list[Callable[[], Any]] = [lambda: database.transact(texts), lambda: database.read(texts), database.scrub]
    if database.engine == "postgres":  # locks of files need no database
        uses += [lambda: database.locks(None), lambda: locks.acquire("t"), lambda: locks.owned(frozenset("t"))]
    for use in uses:
        with pytest.raises(AgentClosed, match=r"database '.+' is closed; .*open it again"):
            await use()
    async with contextlib.aclosing(await Database.open(place, schemas=[NOTES])) as again:
        assert await again.read(texts) == ["last"]


async def test_an_older_database_is_brought_up_to_date_once(place: Place, database: Database) -> None:
    await database.transact(lambda tx: add("kept", tx))
    for _ in range(2):
        async with contextlib.aclosing(await Database.open(place, schemas=[NOTES_2])) as newer:
            await newer.transact(lambda tx: tx.execute("INSERT INTO note(id, text, tag) VALUES(2, 'new', 'mine')"))
    rows = await database.read(lambda tx: tx.execute("SELECT text, tag FROM note ORDER BY id"))
    assert rows == [("kept", "old"), ("new", "mine"), ("new", "mine")]


OPEN_AND_ADD = """
import asyncio, sys
from support.databases import named
from worldagent.storage import Database, Schema
NOTES = Schema("notes", (("CREATE TABLE note(id BIGINT NOT NULL, text TEXT NOT NULL)",),))
async def main():
    database = await Database.open(named(sys.argv[1]), schemas=[NOTES])
    for _ in range(20):
        await database.transact(lambda tx: tx.execute("INSERT INTO note(id, text) VALUES(1, 'x')"))
    await database.aclose()
asyncio.run(main())
"""


async def test_several_processes_make_and_use_one_database_at_once(place: Place) -> None:
    await asyncio.gather(*(run_script(OPEN_AND_ADD, word(place)) for _ in range(3)))
    async with contextlib.aclosing(await Database.open(place, schemas=[NOTES])) as database:
        assert len(await database.read(texts)) == 60


async def test_what_a_newer_package_wrote_is_refused_with_its_name(place: Place) -> None:
    other = Schema("other", (("CREATE TABLE other(id BIGINT)",),))
    await (await Database.open(place, schemas=[NOTES_2])).aclose()
    with pytest.raises(SchemaTooNew, match=r"has version 2 of 'notes', but this package knows only 1; install"):
        await Database.open(place, schemas=[other, NOTES])
    async with contextlib.aclosing(await Database.open(place, schemas=[])) as database:
        assert await database.read(lambda tx: tx.execute("SELECT name FROM wa_schema")) == [("notes",)]
    await (await Database.open(place, schemas=[NOTES_2, other])).aclose()
    with pytest.raises(SchemaTooNew, match=r"has the part 'other', which this package does not know; install"):
        await Database.open(place, schemas=[NOTES_2])
    with pytest.raises(InvalidArgument, match="schema 'notes' is given twice"):
        await Database.open(place, schemas=[NOTES, NOTES_2])
