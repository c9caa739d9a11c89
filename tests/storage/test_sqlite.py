"""A database in a SQLite file: its mode, its folder, its locks, and files that are not databases."""

import asyncio
import contextlib
import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from support.databases import NOTES, add, texts
from worldagent.core.errors import SchemaTooNew, StorageInvalid, StorageUnavailable
from worldagent.storage import Schema, Transaction, sqlite
from worldagent.storage.sqlite import _OPEN_TIMEOUT
from worldagent.storage.sqlite import SqliteDatabase as Database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.at(tmp_path / "home" / "agent.db", schemas=[NOTES])) as opened:
        yield opened


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


async def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, database: Database) -> None:
    broken = Schema("notes", (*NOTES.migrations, ("CREATE TABLE extra(id INTEGER)", "nonsense")))
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        await Database.at(database.path, schemas=[broken])
    tables = await database.read(lambda tx: tx.execute("SELECT name FROM sqlite_master WHERE type='table'"))
    assert sorted(tables) == [("note",), ("wa_schema",)]


async def test_an_open_with_nothing_to_migrate_waits_for_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with contextlib.aclosing(await Database.at(path, schemas=[NOTES])) as first:
        await first.transact(lambda tx: add("one", tx))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(3):
            database = await Database.at(path, schemas=[NOTES])
            assert await database.read(texts) == ["one"]
            with pytest.raises(SchemaTooNew):
                await Database.at(path, schemas=[Schema("notes", ())])
        writing = asyncio.create_task(database.transact(lambda tx: add("two", tx)))
        _, pending = await asyncio.wait({writing}, timeout=0.05)
        assert pending, "the write did not wait"
        other.execute("COMMIT")
        await writing
        assert await database.read(texts) == ["one", "two"]
        await database.aclose()


async def test_open_gives_up_where_no_process_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _OPEN_TIMEOUT == 5
    monkeypatch.setattr("worldagent.storage.sqlite._OPEN_TIMEOUT", 0.1)
    path = tmp_path / "agent.db"
    await (await Database.at(path, schemas=[NOTES])).aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(4):
            with pytest.raises(StorageUnavailable, match=r"is locked.*; end the process that holds it, or try again"):
                await Database.at(path, schemas=[NOTES])


async def test_two_that_empty_the_write_ahead_log_at_once_wait_for_each_other(database: Database) -> None:
    """SQLite itself says at once that it is busy, and its timeout does not count there."""
    async with contextlib.aclosing(await Database.at(database.path, schemas=[NOTES])) as other:

        async def empty(one: Database) -> None:
            for n in range(20):
                await one.transact(partial(add, f"{n}" * 5_000))
                await one.scrub()

        await asyncio.wait_for(asyncio.gather(empty(database), empty(other)), 60)
        assert len(await other.read(texts)) == 40


async def test_database_that_cannot_use_wal_is_refused() -> None:
    refused = pytest.raises(StorageUnavailable, match=r"'agent\.db' cannot use WAL; put the home on a local disk")
    with contextlib.closing(sqlite3.connect(":memory:")) as connection, refused:
        sqlite._enter_wal(connection, Path("agent.db"))


async def test_file_without_a_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path, content = tmp_path / "agent.db", b"just some text, and quite a lot of it" * 40
    path.write_bytes(content)
    with pytest.raises(StorageInvalid, match=r"agent\.db' is not a valid SQLite database") as caught:
        await Database.at(path, schemas=[NOTES])
    assert "another home" in caught.value.remedy
    assert path.read_bytes() == content


async def test_foreign_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript("PRAGMA journal_mode=WAL; CREATE TABLE note(x)")
    before = path.read_bytes()
    with pytest.raises(StorageInvalid, match=r"agent\.db' differ from those of this package") as caught:
        await Database.at(path, schemas=[NOTES])
    assert "another home" in caught.value.remedy
    assert path.read_bytes() == before


async def test_full_disk_is_named_and_earlier_rows_stay(database: Database) -> None:
    await database.transact(lambda tx: add("before", tx))

    def fill(transaction: Transaction) -> None:
        [(pages,)] = transaction.execute("PRAGMA page_count")
        transaction.execute(f"PRAGMA max_page_count={pages + 2}")
        add("half", transaction)
        add("x" * 100_000, transaction)

    with pytest.raises(StorageUnavailable, match=r"agent\.db' failed \(database or disk is full\); free space"):
        await database.transact(fill)
    assert await database.read(texts) == ["before"]


async def test_remedy_is_that_of_the_systems_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    long = tmp_path / ("x" * 300)
    for path, remedy in (
        (file / "agent.db", "a part of this path is a file"),
        (file / "home" / "agent.db", "a part of this path is a file"),
        (long / "agent.db", "shorter path"),
    ):
        with pytest.raises(StorageUnavailable, match="cannot be used") as caught:
            await Database.at(path, schemas=[NOTES])
        assert remedy in caught.value.remedy
    await (await Database.at(tmp_path / "home" / "agent.db", schemas=[NOTES])).aclose()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        with contextlib.suppress(OSError):
            while True:
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(StorageUnavailable, match="cannot be used") as caught:
            await Database.at(tmp_path / "home" / "agent.db", schemas=[NOTES])
    assert "ulimit -n" in caught.value.remedy


async def test_damaged_schema_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    indexed = Schema("notes", (*NOTES.migrations, ("CREATE INDEX note_id ON note(id)",)))
    await (await Database.at(path, schemas=[indexed])).aclose()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql='CREATE INDIX' WHERE name='note_id'")
    with pytest.raises(StorageInvalid, match=r"agent\.db'.*restore the file from a copy"):
        async with contextlib.aclosing(await Database.at(path, schemas=[indexed])) as database:
            await database.read(lambda tx: tx.execute("SELECT name FROM sqlite_master"))


async def test_empty_file_in_a_home_that_was_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAKING_SECONDS", 0.02)
    (tmp_path / "agent.db").touch()
    (tmp_path / "role.key").write_bytes(b"x")
    with pytest.raises(StorageInvalid, match=r"agent\.db' is empty, and this home was used before; restore it from"):
        await Database.at(tmp_path / "agent.db", schemas=[NOTES])
    assert (tmp_path / "agent.db").stat().st_size == 0
    await (await Database.at(tmp_path / "agent.db", schemas=[NOTES], expendable=True)).aclose()


async def test_file_whose_tables_were_in_a_lost_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAKING_SECONDS", 0.02)
    path = tmp_path / "young" / "agent.db"
    database = await Database.at(path, schemas=[NOTES])
    await database.transact(partial(add, "a"))
    for name in ("used", "unused"):
        (tmp_path / name).mkdir()
        shutil.copy(path, tmp_path / name)  # without its log, as a crash or a careless copy leaves it
    await database.aclose()
    for folder in (path.parent, tmp_path / "used"):
        (folder / "locks").mkdir()
    with pytest.raises(StorageInvalid, match=r"has no tables, and this home was used before: its write-ahead log"):
        await Database.at(tmp_path / "used" / "agent.db", schemas=[NOTES])
    await (await Database.at(tmp_path / "used" / "agent.db", schemas=[NOTES], expendable=True)).aclose()
    for folder in (path.parent, tmp_path / "unused"):
        await (await Database.at(folder / "agent.db", schemas=[NOTES])).aclose()


async def test_empty_file_of_an_interrupted_first_start_is_used(tmp_path: Path) -> None:
    (tmp_path / "agent.db").touch()
    (tmp_path / "roles.db").write_bytes(b"x")
    await (await Database.at(tmp_path / "agent.db", schemas=[NOTES])).aclose()


async def test_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "agent.db").touch()
    opening = asyncio.create_task(Database.at(tmp_path / "agent.db", schemas=[NOTES]))
    await asyncio.sleep(0)
    await (await Database.at(tmp_path / "agent.db", schemas=[NOTES], expendable=True)).aclose()
    await (await opening).aclose()
