"""A copy of a home, made while agents use it, which is a home itself: whoever needs it opens an agent on it.

Each database is copied as it is at one moment, by SQLite's own way to do that. What a server keeps is the server's
matter. The copy appears under its name only once it is complete, and nothing stays of killed runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from ...core.errors import InvalidArgument, StorageUnavailable, WorldAgentError
from ...storage import Storage, from_sqlite

_BUSY: Final = 30.0  # seconds
_STEP: Final = 2048  # pages of a database between two looks whether it should stop
_ELSEWHERE: Final = "name a folder that is not there yet, on a disk with space"
_REMEDIES: Final = {
    errno.ENAMETOOLONG: "name a folder with a shorter name",
    errno.ENOENT: "make the folder first that it should stand in",
    errno.ENOTDIR: "name a folder in another folder, not in a file",
    errno.EACCES: "name a folder where this user may write",
    errno.EPERM: "name a folder where this user may write",
    errno.EROFS: "name a folder on a disk that can be written",
}
_UNWRITTEN: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_REFERRED: Final = "SELECT DISTINCT sha256 FROM wa_attachment"

_Check = Callable[[], None]
"""Raises where the copy is not wanted any more."""


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
        InvalidArgument: There is something at `folder`, there is no home, its database is on a server, or another run
            makes the same copy.
        StorageUnavailable, StorageInvalid: A file cannot be read or written, or is no sound database.
    """
    if storage.url is not None and not home_only:
        raise InvalidArgument(
            f"the database {str(storage.place)!r} is on a Postgres server, which is not copied from here",
            remedy="back it up with pg_dump, and the rest of the home with home_only (--home-only)",
        )
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise _Stopped

    copying = asyncio.ensure_future(asyncio.to_thread(_copied, storage, folder, roles, check))
    try:
        return await asyncio.shield(copying)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(copying, return_exceptions=True)  # so that nothing is left of it
        raise


class _Stopped(Exception):
    """The copy is not wanted any more."""


def _copied(storage: Storage, folder: Path, roles: bool, check: _Check) -> Backup:
    home, folder = storage.resolve(), folder.absolute()
    if not home.is_dir():
        raise InvalidArgument(f"there is no home {str(home)!r}", remedy="name it with --home or the setting home")
    failure: OSError | None = None
    try:
        _check_free(folder)
        with _whole_folder(folder) as new:
            missing = _fill(new, storage, roles, check)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = tuple(path.relative_to(folder).as_posix() for path in files)
        return Backup(folder=folder, files=names, size=sum(path.stat().st_size for path in files), missing=missing)
    except OSError as error:
        failure = error
    problem = failure.strerror or type(failure).__name__
    refused = failure.errno in (errno.EACCES, errno.EPERM)
    if refused and failure.filename and Path(os.fsdecode(failure.filename)).is_relative_to(home):
        raise StorageUnavailable(
            f"{os.fsdecode(failure.filename)!r} cannot be read ({problem})", remedy="make it readable for this user"
        )
    raise StorageUnavailable(
        f"no copy could be made at {str(folder)!r} ({problem})", remedy=_REMEDIES.get(failure.errno or 0, _ELSEWHERE)
    )


def _check_free(folder: Path) -> None:
    if "\0" in str(folder):
        raise InvalidArgument("the name of the folder holds a NUL character", remedy="give the path of a folder")
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise InvalidArgument(
            f"there is something at {str(folder)!r} already", remedy="name a folder that is not there"
        )


def _fill(new: Path, storage: Storage, roles: bool, check: _Check) -> tuple[str, ...]:
    """Copy into a new folder; give the hashes of what the copied messages refer to and it has not."""
    databases = [storage.database] if storage.url is None else []
    databases += [storage.roles] if roles else []
    for source in filter(Path.is_file, databases):
        _copy_database(source, new / source.name, check)
    if roles and storage.role_key.is_file():
        _copy_file(storage.role_key, new / storage.role_key.name)
    _copy_pieces(storage.attachments, new / storage.attachments.name, check)
    missing = _missing(new, storage)
    check()
    return missing


def _copy_database(source: Path, target: Path, check: _Check) -> None:
    target.touch(mode=0o600)
    failure: WorldAgentError | None
    try:
        with contextlib.closing(sqlite3.connect(source, timeout=_BUSY)) as live:
            live.execute("PRAGMA query_only=ON")
            # All steps copy what stands now: what is written meanwhile does not make them begin again.
            live.execute("BEGIN")
            live.execute("SELECT 1 FROM sqlite_master").fetchall()
            _copy_pages(live, target, check)
        with _reading(target) as copy:
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


def _copy_pages(live: sqlite3.Connection, target: Path, check: _Check) -> None:
    try:
        with contextlib.closing(sqlite3.connect(target)) as copy:
            live.backup(copy, pages=_STEP, progress=lambda *_: check())
            return
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) not in _UNWRITTEN:
            raise
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reading(database: Path) -> contextlib.closing[sqlite3.Connection]:
    """A database that nobody writes to; no file is made beside it, for which there may be no space."""
    return contextlib.closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True))


def _copy_file(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    shutil.copyfile(source, target)
    _sync(target)


def _copy_pieces(source: Path, target: Path, check: _Check) -> None:
    """Copy the contents of attachments; what is on its way in or out has a name that begins with a dot."""
    for piece in sorted(source.glob("*/*")):
        if piece.name.startswith(".") or not piece.is_file():
            continue
        check()
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
    with _reading(database) as copy:
        if not copy.execute("SELECT 1 FROM sqlite_master WHERE name='wa_attachment'").fetchall():
            return ()
        return tuple(sorted(sha256 for (sha256,) in copy.execute(_REFERRED) if sha256 not in there))


@contextlib.contextmanager
def _whole_folder(folder: Path) -> Generator[Path]:
    """Give a new folder to fill, beside its place, which it gets at the end of the block if nothing was raised.

    What is not finished has a name that begins with `.worldagent-backup-`, and goes with the block; that of a run which
    was killed goes with the next one that makes the same folder.

    Args:
        folder: Where it goes; nothing is there, or an empty folder.

    Raises:
        InvalidArgument: Another run makes the same folder.
        OSError: It cannot be made.
    """
    folder.parent.stat()  # it is not made here, and the lock would make it
    # A digest, since a name may be as long as names can be.
    digest = hashlib.blake2b(os.fsencode(folder.name), digest_size=8).hexdigest()
    beginning = f".worldagent-backup-{digest}."
    with _locked(folder, beginning) as alone:
        for left in folder.parent.glob(f"{beginning}*/") if alone else ():
            shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=beginning, dir=folder.parent))  # for its owner alone
        try:
            yield new
            _sync(new)
            os.rename(new, folder)
            _sync(folder.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)  # once it has its name, nothing of this one is there


def _sync(path: Path) -> None:
    """Have a file or folder outlast a power cut."""
    if os.name != "posix" and path.is_dir():
        return  # a folder cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(folder: Path, beginning: str) -> Generator[bool]:
    """Keep other runs out; whether that is so, since some file systems know no locks."""
    place = folder.with_name(f"{beginning}lock")
    lock = FileLock(place, mode=0o600, thread_local=False, fallback_to_soft=False)
    busy = False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        busy = True
    except OSError:
        pass  # there are no locks, or nothing can be written at all
    if busy:
        raise InvalidArgument(
            f"another run makes {str(folder)!r}", remedy="wait until it has ended, or name another folder"
        )
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with contextlib.suppress(OSError):  # a file in use cannot be deleted everywhere
                place.unlink()
            lock.release()


__all__ = ["Backup", "back_up"]
