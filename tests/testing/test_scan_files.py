"""The scan reads files and databases whole, and leaves them as they were."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.leaks import LONG, SHORT, canary
from worldagent.core.errors import InvalidArgument, StorageUnavailable
from worldagent.testing import RoleLeak, assert_no_role_leak, scan_for_roles


@pytest.fixture
def live(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database in WAL mode whose connection stays open, with nothing moved from the WAL into the file."""
    with closing(sqlite3.connect(tmp_path / "live.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute('CREATE TABLE "odd ""name" (id INTEGER PRIMARY KEY, body, blob BLOB)')
        connection.commit()
        yield connection


def places(thing: object, *texts: str) -> list[str]:
    return [finding.place for finding in scan_for_roles(thing, texts).findings]


@pytest.mark.requirement("R7")
def test_a_text_in_a_file_of_a_folder_is_found_and_the_file_is_named(tmp_path: Path) -> None:
    text = LONG
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "log.jsonl").write_text(f"one line\n{text}\n")
    (tmp_path / "clean.txt").write_text("nothing here")
    with pytest.raises(RoleLeak) as caught:
        assert_no_role_leak(tmp_path, text)
    (finding,) = caught.value.report.findings
    assert (finding.place, finding.offset) == (f"{tmp_path.name}/a/b/log.jsonl", 9)
    assert finding.length == len(text)
    assert text not in str(caught.value)


def test_a_text_across_the_border_of_two_chunks_is_found(tmp_path: Path) -> None:
    for shift in (1, 20, 39, 200, 399):
        (tmp_path / "big").write_bytes(bytes((4 << 20) - shift) + LONG.encode() + bytes(5 << 20))
        (finding,) = scan_for_roles(tmp_path / "big", LONG).findings
        assert (finding.offset, finding.length >= 40) == ((4 << 20) - shift, True)


@pytest.mark.requirement("R7")
def test_a_value_that_is_only_in_the_wal_is_found_in_the_bytes_and_in_its_column(
    tmp_path: Path, live: sqlite3.Connection
) -> None:
    text = SHORT
    live.execute('INSERT INTO "odd ""name" (body) VALUES (?)', (text,))
    live.commit()
    folder = tmp_path.name
    for thing, prefix in ((tmp_path, f"{folder}/"), (tmp_path / "live.sqlite", "")):
        assert set(places(thing, text)) == {
            f"{prefix}live.sqlite-wal",
            f'{prefix}live.sqlite: odd "name.body, row 1',
        }


def test_a_deleted_value_is_found_where_its_bytes_are_left(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE t (body)")
        connection.execute("INSERT INTO t VALUES (?)", (LONG,))
        connection.commit()
        connection.execute("DELETE FROM t")
        connection.commit()
    assert places(tmp_path / "db", LONG) == ["db"]


def test_a_value_torn_over_pages_is_found_in_its_column(tmp_path: Path) -> None:
    """SQLite puts four bytes of its own between the parts of a long value, which hides a run from a search of bytes."""
    text, data = canary(40, 3), b""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (body BLOB)")
        for start in range(0, 5000, 20):
            connection.execute("DELETE FROM t")
            connection.execute("INSERT INTO t VALUES (?)", (bytes(start) + text.encode() + bytes(9000 - start),))
            connection.commit()
            connection.execute("VACUUM")
            data = connection.serialize()
            if text.encode() not in data:
                break
    assert text.encode() not in data
    (tmp_path / "db").write_bytes(data)
    assert places(tmp_path / "db", text) == ["db: t.body, row 1"]


def test_a_default_in_the_schema_and_a_table_named_after_a_role_are_found_without_showing_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute(f'CREATE TABLE "{SHORT}" (body TEXT)')
        connection.execute(f'INSERT INTO "{SHORT}" VALUES (?)', (LONG,))
        connection.commit()
    report = scan_for_roles(tmp_path / "db", [SHORT, LONG])
    assert any("sqlite_master.sql" in finding.place for finding in report.findings)
    assert any("name holds a role" in finding.place and finding.canary == 1 for finding in report.findings)
    assert not any(SHORT in finding.place for finding in report.findings)


def test_a_file_named_after_a_role_is_found_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / SHORT).write_bytes(b"")
    (finding,) = scan_for_roles(tmp_path, SHORT).findings
    assert finding.place == "name of a file"


def test_the_scan_changes_nothing_and_takes_no_lock(tmp_path: Path, live: sqlite3.Connection) -> None:
    live.execute('INSERT INTO "odd ""name" (body) VALUES (?)', ("x" * 10_000,))
    live.commit()
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in tmp_path.iterdir()}
    live.execute("BEGIN IMMEDIATE")
    assert_no_role_leak(tmp_path, [SHORT, LONG])
    live.execute('INSERT INTO "odd ""name" (body) VALUES (?)', ("y",))
    live.rollback()
    after = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in tmp_path.iterdir()}
    assert {name: value for name, value in after.items() if name != "live.sqlite-shm"} == {
        name: value for name, value in before.items() if name != "live.sqlite-shm"
    }


@pytest.mark.skipif(os.name == "nt", reason="only POSIX drops the locks of a file that is closed")
def test_locks_that_this_process_holds_survive_the_scan(tmp_path: Path) -> None:
    database = tmp_path / "db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE t (body)")
        connection.execute("BEGIN EXCLUSIVE")
        assert_no_role_leak(tmp_path, LONG)
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('INSERT INTO t VALUES (1)')"
        other = subprocess.run(
            [sys.executable, "-c", code, str(database)], capture_output=True, text=True, timeout=60, check=False
        )
        assert "database is locked" in other.stderr


def test_a_broken_database_is_searched_as_bytes_and_named(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"SQLite format 3\0" + LONG.encode())
    report = scan_for_roles(tmp_path, LONG)
    assert report.raw_only == (f"{tmp_path.name}/db",)
    assert [finding.place for finding in report.findings] == [f"{tmp_path.name}/db"]


def test_a_path_that_does_not_exist_is_an_error_and_no_clean_result(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not exist"):
        assert_no_role_leak(tmp_path / "missing", LONG)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read everything")
def test_a_file_that_cannot_be_read_is_an_error_and_no_clean_result(tmp_path: Path) -> None:
    (tmp_path / "closed").touch(mode=0)
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        assert_no_role_leak(tmp_path, LONG)


def test_a_copy_that_fails_is_an_error_and_no_clean_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db").touch()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StorageUnavailable, match="could not be copied"):
        assert_no_role_leak(tmp_path, LONG)


def test_the_copies_are_gone_after_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text(LONG)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    scan_for_roles(tmp_path / "data", LONG)
    assert list((tmp_path / "temporary").iterdir()) == []
