"""One database: open, migrate, transact, read, close, and what goes wrong with each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from worldagent.core.errors import (
    AgentClosed,
    InvalidArgument,
    SchemaTooNew,
    StorageInvalid,
    StorageUnavailable,
)
from worldagent.storage import Database, Schema, Transaction
from worldagent.storage._database import _OPEN_TIMEOUT

NOTES = Schema("notes", (("CREATE TABLE note(id INTEGER PRIMARY KEY, text TEXT NOT NULL)",),))
NOTES_2 = Schema("notes", (*NOTES.migrations, ("ALTER TABLE note ADD COLUMN tag TEXT", "UPDATE note SET tag='old'")))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.open(tmp_path / "home" / "agent.db", schemas=[NOTES])) as opened:
        yield opened


def add(text: str, transaction: Transaction) -> None:
    transaction.execute("INSERT INTO note(text) VALUES(?)", (text,))


def texts(transaction: Transaction) -> list[str]:
    return [row[0] for row in transaction.execute("SELECT text FROM note ORDER BY id")]


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_what_a_transaction_wrote_is_read_afterwards_and_after_a_reopen(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as database:
        await database.transact(lambda tx: add("one", tx))
        assert await database.read(texts) == ["one"]
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as database:
        assert await database.read(texts) == ["one"]


async def test_the_folder_and_the_files_are_for_this_user_only(database: Database) -> None:
    await database.transact(lambda tx: add("one", tx))
    assert stat.S_IMODE(database.path.parent.stat().st_mode) == 0o700
    files = list(database.path.parent.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_commits_reach_the_disk_and_foreign_keys_hold(database: Database) -> None:
    def settings(transaction: Transaction) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [transaction.execute(f"PRAGMA {name}")[0][0] for name in names]

    assert await database.transact(settings) == ["wal", 2, 1, 30_000]


async def test_work_that_raises_writes_nothing_and_its_error_comes_out(database: Database) -> None:
    def work(transaction: Transaction) -> None:
        add("one", transaction)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.transact(work)
    assert await database.read(texts) == []
    await database.transact(lambda tx: add("two", tx))
    assert await database.read(texts) == ["two"]


async def test_work_that_raises_stop_iteration_fails_instead_of_hanging(database: Database) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(10):
            await database.transact(lambda tx: next(iter(texts(tx))))


async def test_mistakes_of_the_programmer_come_out_as_sqlite_tells_them(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table: missing"):
        await database.transact(lambda tx: tx.execute("SELECT * FROM missing"))
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        await database.transact(lambda tx: tx.execute("INSERT INTO note(text) VALUES(?)", (None,)))
    with pytest.raises(sqlite3.ProgrammingError):
        await database.transact(lambda tx: tx.execute("INSERT INTO note(text) VALUES(?)"))


async def test_a_text_that_utf8_cannot_hold_is_refused_and_not_repeated(database: Database) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await database.transact(lambda tx: add("secret \ud800", tx))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
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


async def test_a_transaction_that_waits_in_the_queue_is_not_lost_by_a_cancellation(database: Database) -> None:
    go_on = threading.Event()
    first = asyncio.create_task(database.transact(lambda tx: go_on.wait(10)))
    second = asyncio.create_task(database.transact(lambda tx: add("queued", tx)))
    await asyncio.sleep(0)
    second.cancel()
    go_on.set()
    assert await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await database.read(texts) == ["queued"]


async def test_a_failure_after_a_cancellation_disturbs_nobody(database: Database) -> None:
    started, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(transaction: Transaction) -> None:
        loop.call_soon_threadsafe(started.set)
        assert go_on.wait(10)
        raise KeyError("too late to tell")

    task = asyncio.create_task(database.transact(work))
    await started.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_after_close_every_use_is_refused_and_closing_again_is_nothing(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "agent.db", schemas=[NOTES])
    last = asyncio.create_task(database.transact(lambda tx: add("last", tx)))
    await asyncio.sleep(0)
    await asyncio.gather(database.aclose(), database.aclose())
    await last
    await database.aclose()
    for use in (database.transact, database.read):
        with pytest.raises(AgentClosed, match=r"agent\.db' is closed; .*open it again"):
            await use(texts)
    async with contextlib.aclosing(await Database.open(tmp_path / "agent.db", schemas=[NOTES])) as again:
        assert await again.read(texts) == ["last"]


@pytest.mark.parametrize("failing", [False, True])
async def test_nothing_is_left_behind(tmp_path: Path, failing: bool) -> None:
    if failing:
        (tmp_path / "agent.db").write_bytes(b"no database " * 100)
    process = psutil.Process()
    threads, files = threading.active_count(), process.num_fds()
    for _ in range(3):
        if failing:
            with pytest.raises(StorageInvalid):
                await Database.open(tmp_path / "agent.db", schemas=[NOTES])
        else:
            database = await Database.open(tmp_path / "agent.db", schemas=[NOTES])
            await database.read(texts)
            await database.aclose()
    assert (threading.active_count(), process.num_fds()) == (threads, files)


async def test_an_open_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    threads, files = threading.active_count(), psutil.Process().num_fds()
    task = asyncio.create_task(Database.open(tmp_path / "agent.db", schemas=[NOTES]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (threading.active_count(), psutil.Process().num_fds()) == (threads, files)


def test_one_database_serves_several_event_loops_in_turn(tmp_path: Path) -> None:
    database = asyncio.run(Database.open(tmp_path / "agent.db", schemas=[NOTES]))
    asyncio.run(database.transact(lambda tx: add("one", tx)))
    assert asyncio.run(database.read(texts)) == ["one"]
    asyncio.run(database.aclose())


# --- migrations ------------------------------------------------------------------------------------------------------


async def test_an_older_file_is_brought_up_to_date_once(tmp_path: Path, database: Database) -> None:
    await database.transact(lambda tx: add("kept", tx))
    for _ in range(2):
        async with contextlib.aclosing(await Database.open(database.path, schemas=[NOTES_2])) as newer:
            await newer.transact(lambda tx: tx.execute("INSERT INTO note(text, tag) VALUES('new', 'mine')"))
    rows = await database.read(lambda tx: tx.execute("SELECT text, tag FROM note ORDER BY id"))
    assert rows == [("kept", "old"), ("new", "mine"), ("new", "mine")]


async def test_a_newer_file_is_refused_naming_both_versions_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await (await Database.open(path, schemas=[NOTES_2])).aclose()
    before = path.read_bytes()
    other = Schema("other", (("CREATE TABLE other(id INTEGER)",),))
    with pytest.raises(SchemaTooNew, match=r"agent\.db' has version 2 of 'notes', and this package knows 1; install"):
        await Database.open(path, schemas=[other, NOTES])
    assert path.read_bytes() == before


async def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, database: Database) -> None:
    broken = Schema("notes", (*NOTES.migrations, ("CREATE TABLE extra(id INTEGER)", "nonsense")))
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        await Database.open(database.path, schemas=[broken])
    tables = await database.read(lambda tx: tx.execute("SELECT name FROM sqlite_master WHERE type='table'"))
    assert sorted(tables) == [("note",), ("wa_schema",)]


async def test_two_schemas_of_one_name_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'notes' is given twice"):
        await Database.open(tmp_path / "home" / "agent.db", schemas=[NOTES, NOTES])
    assert os.listdir(tmp_path) == []


OPEN_AND_ADD = """
import asyncio, sys
from pathlib import Path
from worldagent.storage import Database, Schema
NOTES = Schema("notes", (("CREATE TABLE note(id INTEGER PRIMARY KEY, text TEXT NOT NULL)",),))
async def main():
    database = await Database.open(Path(sys.argv[1]), schemas=[NOTES])
    for _ in range(20):
        await database.transact(lambda tx: tx.execute("INSERT INTO note(text) VALUES('x')"))
    await database.aclose()
asyncio.run(main())
"""


async def test_several_processes_make_and_use_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "home" / "agent.db"
    children = [run_python(OPEN_AND_ADD, path) for _ in range(3)]
    for child in children:
        _, errors = await asyncio.to_thread(child.communicate, timeout=60)
        assert (child.returncode, errors) == (0, "")
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as database:
        assert len(await database.read(texts)) == 60


async def test_many_connections_of_one_process_make_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "home" / "agent.db"
    opened = await asyncio.gather(*(Database.open(path, schemas=[NOTES]) for _ in range(10)))
    for database in opened:
        await database.transact(lambda tx: add("x", tx))
    assert await opened[0].read(texts) == ["x"] * 10
    for database in opened:
        await database.aclose()


async def test_an_open_waits_for_another_that_is_making_the_file(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE other(id INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(Database.open(tmp_path / "agent.db", schemas=[NOTES]))
        _, pending = await asyncio.wait({task}, timeout=0.05)
        assert pending, "the open did not wait"
        other.execute("COMMIT")
    await (await task).aclose()


async def test_an_open_with_nothing_to_migrate_waits_for_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as first:
        await first.transact(lambda tx: add("one", tx))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(3):
            database = await Database.open(path, schemas=[NOTES])
            assert await database.read(texts) == ["one"]
            with pytest.raises(SchemaTooNew):
                await Database.open(path, schemas=[Schema("notes", ())])
        writing = asyncio.create_task(database.transact(lambda tx: add("two", tx)))
        _, pending = await asyncio.wait({writing}, timeout=0.05)
        assert pending, "the write did not wait"
        other.execute("COMMIT")
        await writing
        assert await database.read(texts) == ["one", "two"]
        await database.aclose()


async def test_an_open_waits_for_a_writer_where_there_is_something_to_migrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.storage._database._OPEN_TIMEOUT", 0.01)
    path = tmp_path / "agent.db"
    await (await Database.open(path, schemas=[NOTES])).aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(Database.open(path, schemas=[NOTES_2]))
        _, pending = await asyncio.wait({opening}, timeout=0.3)
        assert pending, "the open did not wait"
        other.execute("COMMIT")
    await (await opening).aclose()


async def test_an_open_gives_up_soon_where_another_process_lets_nobody_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _OPEN_TIMEOUT == 5
    monkeypatch.setattr("worldagent.storage._database._OPEN_TIMEOUT", 0.1)
    path = tmp_path / "agent.db"
    await (await Database.open(path, schemas=[NOTES])).aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(4):
            with pytest.raises(StorageUnavailable, match=r"is locked.*; end the process that holds it, or try again"):
                await Database.open(path, schemas=[NOTES])


async def test_what_one_database_reads_before_it_writes_another_cannot_change_between(tmp_path: Path) -> None:
    def count_up(transaction: Transaction) -> None:
        [(count,)] = transaction.execute("SELECT count(*) FROM note")
        add(str(count), transaction)

    opened = [await Database.open(tmp_path / "agent.db", schemas=[NOTES]) for _ in range(3)]
    await asyncio.gather(*(database.transact(count_up) for _ in range(20) for database in opened))
    assert await opened[0].read(texts) == [str(number) for number in range(60)]
    for database in opened:
        await database.aclose()


DIE_IN_MID_TRANSACTION = """
import asyncio, os, signal, sys
from pathlib import Path
from worldagent.storage import Database
def work(tx):
    tx.execute("INSERT INTO note(text) VALUES('half')")
    os.kill(os.getpid(), signal.SIGKILL)
async def main():
    database = await Database.open(Path(sys.argv[1]), schemas=[])
    await database.transact(lambda tx: tx.execute("INSERT INTO note(text) VALUES('whole')"))
    await database.transact(work)
asyncio.run(main())
"""


async def test_a_process_killed_in_mid_transaction_leaves_whole_transactions_only(database: Database) -> None:
    child = run_python(DIE_IN_MID_TRANSACTION, database.path)
    await asyncio.to_thread(child.communicate, timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert await database.read(texts) == ["whole"]
    await database.transact(lambda tx: add("after", tx))


async def test_the_checkpointer_writes_to_the_same_file_at_the_same_time(database: Database) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(database.path)) as saver:

        async def checkpoints(thread: int) -> None:
            for _ in range(10):
                config = {"configurable": {"thread_id": str(thread), "checkpoint_ns": ""}}
                await saver.aput(config, empty_checkpoint(), {}, {})  # type: ignore[arg-type]  # a config is a dict

        async def notes() -> None:
            for _ in range(10):
                await database.transact(lambda tx: add("x", tx))

        async with asyncio.timeout(25):
            await asyncio.gather(*(checkpoints(thread) for thread in range(5)), *(notes() for _ in range(5)))
    assert len(await database.read(texts)) == 50


# --- what the host must act on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"just some text, and quite a lot of it" * 40, b"SQLite format 3\x00" + b"\xff" * 2000]
)
async def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    with pytest.raises(StorageInvalid, match=r"agent\.db' is not a sound SQLite database") as caught:
        await Database.open(path, schemas=[NOTES])
    assert "another home" in caught.value.remedy
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE note(x)",
        "CREATE TABLE wa_schema(x)",
        "CREATE VIEW wa_schema AS SELECT 1",
        "CREATE VIEW note AS SELECT 1",
    ],
)
async def test_a_database_of_somebody_else_with_a_table_of_that_name_is_named_and_left_alone(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "agent.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(f"PRAGMA journal_mode=WAL; {change}")
    before = path.read_bytes()
    with pytest.raises(StorageInvalid, match=r"agent\.db' are not as this package") as caught:
        await Database.open(path, schemas=[NOTES])
    assert "another home" in caught.value.remedy
    assert path.read_bytes() == before


async def test_a_table_that_is_changed_later_is_named_and_a_mistake_beside_it_still_comes_out(
    tmp_path: Path, database: Database
) -> None:
    mistake = database.transact(lambda tx: tx.execute("SELECT missing FROM note"))
    with pytest.raises(sqlite3.OperationalError, match="no such column: missing"):
        await mistake
    with contextlib.closing(sqlite3.connect(database.path)) as other:
        other.executescript(
            "DROP TABLE note; CREATE TABLE note(id INTEGER PRIMARY KEY, text TEXT NOT NULL, x NOT NULL)"
        )
    with pytest.raises(StorageInvalid, match=r"agent\.db' are not as this package"):
        await database.transact(lambda tx: add("one", tx))
    assert await database.read(texts) == []


async def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "agent.db").touch()
    async with contextlib.aclosing(await Database.open(tmp_path / "agent.db", schemas=[NOTES])) as database:
        assert await database.read(texts) == []


async def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "agent.db", tmp_path / "file" / "below" / "agent.db"):
        with pytest.raises(StorageUnavailable, match=r"file.*cannot be used") as caught:
            await Database.open(path, schemas=[NOTES])
        assert "use another home" in caught.value.remedy


async def test_a_folder_where_the_file_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.db").mkdir()
    with pytest.raises(
        StorageUnavailable, match=r"agent\.db' failed \(unable to open database file\); make its folder"
    ):
        await Database.open(tmp_path / "agent.db", schemas=[NOTES])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write, root neither")
async def test_a_home_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StorageUnavailable, match=r"'/proc/worldagent' cannot be used"):
        await Database.open(Path("/proc/worldagent/agent.db"), schemas=[NOTES])


async def test_a_home_in_which_the_log_cannot_be_made_is_named(tmp_path: Path) -> None:
    # The one way to forbid files beside the database that holds for root too.
    (tmp_path / "agent.db-wal").mkdir()
    with pytest.raises(StorageUnavailable, match=r"agent\.db' failed"):
        await Database.open(tmp_path / "agent.db", schemas=[NOTES])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
async def test_a_read_only_home_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    with pytest.raises(StorageUnavailable, match=r"agent\.db' failed"):
        await Database.open(home / "agent.db", schemas=[NOTES])
    assert list(home.iterdir()) == []


async def test_a_full_disk_is_named_and_what_stood_before_stays(database: Database) -> None:
    await database.transact(lambda tx: add("before", tx))

    def fill(transaction: Transaction) -> None:
        [(pages,)] = transaction.execute("PRAGMA page_count")
        transaction.execute(f"PRAGMA max_page_count={pages + 2}")
        add("half", transaction)
        add("x" * 100_000, transaction)

    with pytest.raises(StorageUnavailable, match=r"agent\.db' failed \(database or disk is full\); free space"):
        await database.transact(fill)
    assert await database.read(texts) == ["before"]


async def test_a_file_that_is_damaged_later_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as database:
        for _ in range(50):
            await database.transact(lambda tx: add("x" * 1000, tx))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    async with contextlib.aclosing(await Database.open(path, schemas=[NOTES])) as database:
        with pytest.raises(StorageInvalid, match=r"agent\.db' is not a sound"):
            await database.read(texts)
