"""A copy of a home, made while agents use it, which is a home itself: whoever needs it opens an agent on it.

Each database is copied as it stands at one moment, by SQLite's own way to do that. What a server keeps is the server's
matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.errors import InvalidArgument, StorageUnavailable, WorldAgentError
from ...storage import Storage, from_sqlite

_BUSY: Final = 30.0  # seconds
_ELSEWHERE: Final = "name a folder that is not there yet, on a disk with space"
_REFERRED: Final = "SELECT DISTINCT sha256 FROM wa_attachment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A copy of a home.

    Attributes:
        folder: Where it is.
        files: What is in it, below the folder.
        size: Its bytes.
        missing: The hashes of attachments that messages refer to and that are not in the home either.
    """

    folder: Path
    files: tuple[str, ...]
    size: int
    missing: tuple[str, ...]


async def back_up(storage: Storage, folder: Path, *, roles: bool, home_only: bool) -> Backup:
    """Copy a home.

    Args:
        storage: Where it is.
        folder: Where to; it is made, and only once the copy is whole.
        roles: Whether the stored roles and the key of role digests go along.
        home_only: Whether a home whose database is on a server is copied without it.

    Raises:
        InvalidArgument: There is something at `folder`, there is no home, or its database is on a server.
        StorageUnavailable, StorageInvalid: A file cannot be read or written, or is no sound database.
    """
    if storage.url is not None and not home_only:
        raise InvalidArgument(
            f"the database {str(storage.place)!r} is on a Postgres server, which is not copied from here",
            remedy="back it up with pg_dump, and the rest of the home with home_only (--home-only)",
        )
    return await asyncio.to_thread(_copied, storage, folder, roles)


def _copied(storage: Storage, folder: Path, roles: bool) -> Backup:
    home, folder = storage.resolve(), folder.absolute()
    if not home.is_dir():
        raise InvalidArgument(f"there is no home {str(home)!r}", remedy="name it with --home or the setting home")
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise InvalidArgument(
            f"there is something at {str(folder)!r} already", remedy="name a folder that is not there"
        )
    problem, missing = "", tuple[str, ...]()
    try:
        with _whole(folder) as new:
            for source in _databases(storage, roles):
                _copy_database(source, new / source.name)
            if roles and storage.role_key.is_file():
                _copy_file(storage.role_key, new / storage.role_key.name)
            _copy_pieces(storage.attachments, new / storage.attachments.name)
            missing = _missing(new, storage)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(f"no copy could be made at {str(folder)!r} ({problem})", remedy=_ELSEWHERE)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return Backup(
        folder=folder,
        files=tuple(path.relative_to(folder).as_posix() for path in files),
        size=sum(path.stat().st_size for path in files),
        missing=missing,
    )


def _databases(storage: Storage, roles: bool) -> Iterator[Path]:
    found = [storage.database] if storage.url is None else []
    found += [storage.roles] if roles else []
    return filter(Path.is_file, found)


@contextlib.contextmanager
def _whole(folder: Path) -> Generator[Path]:
    """Give a folder to fill, which gets its name at the end; of one that is not filled nothing is left."""
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.parent))  # for its owner alone
    try:
        yield new
        _sync(new)
        os.rename(new, folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)  # once it has its name, nothing of this one is there


def _copy_database(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    failure: WorldAgentError | None
    try:
        with (
            contextlib.closing(sqlite3.connect(source, timeout=_BUSY)) as live,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            live.execute("PRAGMA query_only=ON")
            live.backup(copy)  # in one step: what is written meanwhile is not in it, and does not make it begin again
            [(found,), *_] = copy.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                raise sqlite3.DatabaseError("damaged")
    except sqlite3.Error as error:
        failure = from_sqlite(error, source)
    else:
        _sync(target)
        return
    raise failure or StorageUnavailable(
        f"the copy of {str(source)!r} is not sound", remedy="check both disks, and see `worldagent doctor`"
    )


def _copy_file(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    shutil.copyfile(source, target)
    _sync(target)


def _copy_pieces(source: Path, target: Path) -> None:
    """Copy the contents of attachments; what is on its way in or out has a name that begins with a dot."""
    for piece in sorted(source.glob("*/*")):
        if piece.name.startswith(".") or not piece.is_file():
            continue
        place = target / piece.parent.name
        for made in (target, place):
            made.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # dropped meanwhile
            _copy_file(piece, place / piece.name)


def _missing(new: Path, storage: Storage) -> tuple[str, ...]:
    """What the copied messages refer to and the copy has not."""
    database = new / storage.database.name
    if not database.is_file():
        return ()
    there = {piece.name for piece in (new / storage.attachments.name).glob("*/*")}
    with contextlib.closing(sqlite3.connect(database)) as copy:
        if not copy.execute("SELECT 1 FROM sqlite_master WHERE name='wa_attachment'").fetchall():
            return ()
        return tuple(sorted(sha256 for (sha256,) in copy.execute(_REFERRED) if sha256 not in there))


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():
        return  # a folder cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["Backup", "back_up"]
