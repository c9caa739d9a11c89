"""Reads files as bytes, and SQLite files also as values, without affecting databases that this process has open.

On POSIX, closing a file drops all locks that the process holds on it, including those of SQLite's live connections. So
a child process copies the files, and this process reads only the copies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InvalidArgument, StorageUnavailable

_SQLITE_MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")
# Reads a list of [source, target] and prints a list of errors: null, or the name of the error's type.
_COPY = """
import json, shutil, sys
def copy(source, target):
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        return type(error).__name__
json.dump([copy(*pair) for pair in json.load(sys.stdin)], sys.stdout)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One file: its name for the report, and the copy to read. `database` is another copy, which SQLite can open."""

    place: str
    copy: Path
    database: Path | None = None


def listed(path: Path) -> list[Path]:
    """Return every regular file under `path`, or the file `path` with SQLite's companion files.

    Raises:
        InvalidArgument: `path` does not exist.
    """
    if path.is_dir():
        found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return sorted(file for file in found if file.is_file())
    if path.is_file():
        companion = (path.with_name(path.name + ending) for ending in _COMPANIONS)
        return [path, *(file for file in companion if file.is_file())]
    raise InvalidArgument(f"the path {str(path)!r} does not exist", remedy="pass a path that exists")


@contextlib.contextmanager
def snapshots(path: Path) -> Generator[Iterator[Snapshot], None, None]:
    """Yield copies of the files under `path`, except those deleted meanwhile. The copies are deleted at the end.

    Raises:
        InvalidArgument: `path` does not exist.
        StorageUnavailable: A file cannot be read.
    """
    files = listed(path)
    with tempfile.TemporaryDirectory(prefix="worldagent-scan-", ignore_cleanup_errors=True) as folder:
        targets = [Path(folder, str(number)) for number in range(len(files))]
        present = {
            source: target
            for source, target, error in zip(files, targets, _copy(files, targets), strict=True)
            if _was_copied(source, error)
        }
        yield (
            Snapshot(place=_name(path, source), copy=target, database=_database(source, target, present))
            for source, target in present.items()
        )


def rows(database: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every value of every table of a SQLite file that no other program has open, with its place.

    Raises:
        sqlite3.Error: The file is not a database, or is damaged.
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        connection.execute("PRAGMA query_only = ON")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in [b"sqlite_master", *names]:
            yield from _values(connection, name.decode("utf-8", "replace"))


def _values(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, bytes]]:
    quoted = table.replace('"', '""')
    try:
        cursor = connection.execute(f'SELECT * FROM "{quoted}"')
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):  # a virtual table of an extension; its data is in ordinary tables
            return
        raise
    columns = [column[0] for column in cursor.description]
    for number, row in enumerate(cursor, 1):
        for column, value in zip(columns, row, strict=True):
            if isinstance(value, bytes):
                yield f"{table}.{column}, row {number}", value


def _copy(sources: Sequence[Path], targets: Sequence[Path]) -> list[str | None]:
    if not sources:
        return []
    pairs = [(os.fspath(source.absolute()), os.fspath(target)) for source, target in zip(sources, targets, strict=True)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COPY], input=json.dumps(pairs), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StorageUnavailable(
            f"the files could not be copied for the scan (exit code {done.returncode})",
            remedy="check the free space of the folder for temporary files",
        )
    errors: list[str | None] = json.loads(done.stdout)
    return errors


def _was_copied(source: Path, error: str | None) -> bool:
    if error is None:
        return True
    if error == FileNotFoundError.__name__:  # deleted since it was listed, as a WAL is with its last connection
        return False
    raise StorageUnavailable(f"file {str(source)!r} cannot be read ({error})", remedy="make it readable for the scan")


def _name(path: Path, source: Path) -> str:
    return source.name if source == path or path.is_file() else f"{path.name}/{source.relative_to(path).as_posix()}"


def _database(source: Path, copy: Path, present: dict[Path, Path]) -> Path | None:
    with copy.open("rb") as file:
        if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
            return None
    # SQLite changes files that it opens (it replays a WAL), so it gets its own copies.
    database = copy.with_name(f"{copy.name}.db")
    shutil.copyfile(copy, database)
    for ending in ("-wal", "-journal"):
        companion = present.get(source.with_name(source.name + ending))
        if companion is not None:
            shutil.copyfile(companion, database.with_name(database.name + ending))
    return database
