"""The home: its folder, disk, databases and locks. Nothing is created or changed, not even next to a database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Generator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ...agent.stores import SCHEMAS
from ...core.files import accessible_to_others
from ...memory.attachments.objects import pieces_of
from ...memory.entries.vectors import PGVECTOR
from ...role_resolution.sources import ROLE_SCHEMA
from ...storage import Database, PostgresAddress, Schema, Transaction, from_sqlite
from ...storage.schema import outdated_schemas, stored_versions
from ...testing.role_host_conformance import Failed, Points, Skipped, Warned
from .installation import Site

POINTS: Final = Points()
point: Final = POINTS.add

_MIB: Final = 1 << 20
_TIGHT, _FULL = 200 * _MIB, 16 * _MIB
MAX_CHECK_SECONDS: Final = 20.0  # seconds that the check of one database can take
_STEPS: Final = 100_000  # SQLite instructions between two looks at the clock
OTHER_HOME: Final = "use another home: --home, or the setting home"
NOT_YET: Final = "does not exist yet; the first use creates it"
MAX_LOCK_FILES: Final = 100_000
SQLITE_SUFFIXES: Final = ("-wal", "-shm", "-journal")  # what SQLite opens with a database
_KINDS: Final = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@point("home.folder", "the home can be used")
async def folder(site: Site) -> str | None:
    """The home is a folder that this user can write to, or it can be created."""
    home, nearest = site.home, site.nearest
    below = [place for place in (home, *home.parents) if place not in (nearest, *nearest.parents)]
    if below and below[-1].is_symlink():
        raise Failed(f"{str(below[-1])!r} is a broken link", f"repair or delete it, or {OTHER_HOME}")
    if not nearest.is_dir():
        raise Failed(f"{str(nearest)!r} is not a folder", OTHER_HOME)
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise Failed(f"{str(nearest)!r} cannot be written by this user", f"change its owner or mode, or {OTHER_HOME}")
    return str(home) if nearest == home else f"{home}: {NOT_YET}"


@point("home.space", "the disk of the home has space")
async def space(site: Site) -> str | None:
    """The disk has room for new messages."""
    nearest = site.nearest
    free = shutil.disk_usage(nearest).free
    shown = f"{free / _MIB:,.0f} MiB are free at {str(nearest)!r}"
    if free < _FULL:
        raise Failed(shown, f"free some space, or {OTHER_HOME}")
    if free < _TIGHT:
        raise Warned(shown, f"free some space, or {OTHER_HOME}")
    return f"{free / _MIB:,.0f} MiB free"


@point("home.private", "no other user can read the roles")
async def private(site: Site) -> str | None:
    """Only the owner can read the role store, or the folder that it is in."""
    file = site.storage.roles
    if os.name != "posix":
        raise Skipped("this system has no file modes", "check who can read the home")
    try:
        there = is_there(file)
    except Failed:
        there = None
    if there is None:
        raise Skipped(f"{str(file)!r} is not a regular file", "see database.roles", reason="needs")
    if not there:
        return NOT_YET
    if accessible_to_others(file.parent):
        check_private(file)
    return f"mode {stat.S_IMODE(file.stat().st_mode):o}"


@point("database.agent", "the conversation database is intact")
async def conversations(site: Site) -> str | None:
    """The database of messages and turns can be read, is not damaged, and is not too new."""
    place = site.storage.place
    return await (_check_server(place) if isinstance(place, PostgresAddress) else _check_file(place, SCHEMAS))


@point("database.roles", "the embedded role store is intact")
async def roles(site: Site) -> str | None:
    """The same of the database of stored roles."""
    file = site.storage.roles
    return await _check_file(file, [ROLE_SCHEMA])


@point("memory.vectors", "memory can be searched by vectors", needs=("database.agent",))
async def vectors(site: Site) -> str | None:
    """What `Memory(embedder=...)` needs is there: numpy for a file, pgvector on a server."""
    place = site.storage.place
    if not isinstance(place, PostgresAddress):
        if find_spec("numpy") is None:
            raise Skipped("numpy is not installed", "to use an embedder, run `pip install 'worldagent[memory]'`")
        return f"numpy {version('numpy')}"
    async with contextlib.aclosing(await Database.open(place, schemas=())) as database:
        [(there, newest)] = await database.read(lambda tx: tx.execute(PGVECTOR))
    if not there and newest is None:
        raise Skipped("the server has no pgvector: memory is searched by words alone", "install pgvector there")
    return f"pgvector {newest}"


@point("attachments.store", "the place of attachments answers")
async def attachments(site: Site) -> str | None:
    """The object store that the setting attachments_url names answers. It is only read."""
    url = site.storage.objects
    if url is None:
        return f"the folder {str(site.storage.attachments)!r}"
    pieces = await asyncio.to_thread(pieces_of, site.storage)
    await asyncio.to_thread(pieces.read, "0" * 64)
    return pieces.place


@point("lock.files", "the locks of threads can be used")
async def locks(site: Site) -> str | None:
    """Lock files can be written. The system frees the lock of a process that ends, so no lock is ever stale."""
    place = site.storage.locks
    if not place.exists() and not place.is_symlink():
        return NOT_YET
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise Failed(f"{str(place)!r} is not a folder that this user can write to", "change its owner or mode")
    files = list(place.glob("*.lock"))
    foreign = next((file for file in files if not file.is_file()), None)
    if foreign is not None:
        raise Failed(f"{str(foreign)!r} is not a regular file", "delete it")
    refused = next((file for file in files if not os.access(file, os.W_OK)), None)
    if refused is not None:
        raise Failed(f"{str(refused)!r} cannot be written by this user", "change its owner or mode")
    if len(files) > MAX_LOCK_FILES:
        raise Warned(f"there are {len(files):,} lock files", "delete them while no agent runs")
    held = holders(files)
    return f"{len(files)} files" + (f", held by process {', '.join(sorted(held))}" if held else "")


def check_private(file: Path) -> None:
    """Check that only the owner can read or change a file.

    Raises:
        Warned: Other users can.
    """
    if accessible_to_others(file):
        mode = f"{stat.S_IMODE(file.stat().st_mode):o}"
        raise Warned(f"other users can read or change {str(file)!r} (mode {mode})", f"run `chmod 600 {str(file)!r}`")


async def _check_file(file: Path, schemas: Sequence[Schema]) -> str:
    """Check one database in a thread, which ends soon after its caller stops waiting for it.

    Raises:
        Failed: It is damaged.
        StorageUnavailable, SchemaTooNew, StorageHalfCopied: It cannot be used.
        Warned: It is too large to check in the time allowed.
    """
    if not is_there(file):
        return NOT_YET
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_look, file, schemas, stop)
    finally:
        stop.set()


async def _check_server(address: PostgresAddress) -> str:
    """Check a database on a server.

    Raises:
        StorageUnavailable, SchemaTooNew, StorageHalfCopied: It cannot be used.
    """

    def work(transaction: Transaction) -> tuple[dict[str, int], str]:
        [(server,)] = transaction.execute("SHOW server_version")
        [(any_made,)] = transaction.execute("SELECT to_regclass('wa_schema')")
        rows = transaction.execute("SELECT name, version FROM wa_schema") if any_made else []
        return dict(rows), str(server).split()[0]

    async with contextlib.aclosing(await Database.open(address, schemas=())) as database:
        versions, server = await database.read(work)
    return f"Postgres {server}, {_schemas(database.name, versions, SCHEMAS) or NOT_YET}"


def is_there(file: Path) -> bool:
    """Whether a database exists. Only regular files are opened: opening a named pipe waits for its other end.

    Raises:
        Failed: Something else is there, or where SQLite keeps its own files next to the database.
    """
    for suffix in SQLITE_SUFFIXES:
        _is_file(file.with_name(file.name + suffix))
    return _is_file(file)


def _is_file(path: Path) -> bool:
    why = ""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not path.is_symlink() or path.resolve().parent.is_dir():  # SQLite creates the file that a link names
            return False
        why = "is a broken link"
    except OSError as error:
        why = f"cannot be examined ({error.strerror})"
    else:
        if stat.S_ISREG(mode):
            return True
        why = f"is a {_KINDS.get(stat.S_IFMT(mode), 'special file')}, not a database"
    raise Failed(f"{str(path)!r} {why}", f"move it away, or {OTHER_HOME}")


def _look(file: Path, schemas: Sequence[Schema], stop: threading.Event) -> str:
    problem: Exception
    try:
        with opened(file, stop) as connection:
            versions = stored_versions(connection)
            damage = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        return _judged(file, versions, damage, schemas)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            problem = Warned(
                f"the check took more than {MAX_CHECK_SECONDS:g} s", "nothing to do: the database is only large"
            )
        else:
            problem = from_sqlite(error, file) or Failed(f"{str(file)!r} cannot be read", OTHER_HOME)
    raise problem


def _judged(file: Path, versions: dict[str, int], damage: list[str], schemas: Sequence[Schema]) -> str:
    if damage != ["ok"]:
        raise Failed(f"{str(file)!r} is damaged", "restore it from a copy, or move it away")
    shown = _schemas(str(file), versions, schemas)
    return f"{file.stat().st_size / _MIB:.1f} MiB" + (f", {shown}" if shown else "")


def _schemas(database: str, versions: dict[str, int], schemas: Sequence[Schema]) -> str:
    outdated_schemas(versions, database, schemas)  # raises if this package cannot use one of them
    return "schema " + ", ".join(f"{name} {versions[name]}" for name in sorted(versions)) if versions else ""


@contextlib.contextmanager
def opened(file: Path, stop: threading.Event) -> Generator[sqlite3.Connection]:
    """Open a database for reading, until `stop` is set or the time is up."""
    # Reading a database in WAL mode creates two files next to it, unless they exist or it is opened as immutable.
    in_use = file.with_name(f"{file.name}-wal").exists()
    connection = sqlite3.connect(f"{file.as_uri()}?{'mode=ro' if in_use else 'immutable=1'}", uri=True, timeout=5)
    deadline = time.monotonic() + MAX_CHECK_SECONDS
    connection.set_progress_handler(lambda: stop.is_set() or time.monotonic() > deadline, _STEPS)
    try:
        yield connection
    finally:
        connection.close()


def holders(files: list[Path]) -> set[str]:
    """The processes that hold one of these locks, if the system reports them."""
    numbers: set[str] = set()
    for file in files:
        with contextlib.suppress(OSError):
            numbers.add(str(file.stat().st_ino))
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return set()
    rows = [line.split() for line in lines if "->" not in line]
    return {row[4] for row in rows if len(row) > 5 and row[5].rpartition(":")[2] in numbers}
