"""A backup of a home, made while agents use it. The backup is itself a home: open an agent on it to use it.

Each database is copied as of one moment, with SQLite's backup API. A Postgres database needs its own backup. The
backup appears under its name only once it is complete, and killed runs leave nothing behind in the end.
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
from ...core.files import sync
from ...memory.attachments.objects import pieces_of
from ...memory.attachments.pieces import FolderPieces, Pieces
from ...storage import Storage, from_sqlite

BUSY_TIMEOUT_SECONDS: Final = 30.0  # seconds
COPY_STEP_PAGES: Final = 2048  # pages of a database between two checks for cancellation
OTHER_FOLDER_REMEDY: Final = "name a folder that does not exist yet, on a disk with space"
_REMEDIES: Final = {
    errno.ENAMETOOLONG: "name a folder with a shorter name",
    errno.ENOENT: "create its parent folder first",
    errno.ENOTDIR: "name a folder in another folder, not in a file",
    errno.EACCES: "name a folder that this user can write to",
    errno.EPERM: "name a folder that this user can write to",
    errno.EROFS: "name a folder on a writable disk",
}
_UNWRITTEN: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_ATTACHMENTS: Final = "attachments"  # the folder of a home
_REFERRED: Final = "SELECT DISTINCT sha256 FROM wa_attachment"

_Check = Callable[[], None]
"""Raises if the backup was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A completed backup of a home.

    Attributes:
        folder: Its folder.
        files: Its files, relative to the folder.
        size: Its size in bytes.
        missing: The hashes of attachments that messages refer to and that the home does not have either.
    """

    folder: Path
    files: tuple[str, ...]
    size: int
    missing: tuple[str, ...]


async def back_up(storage: Storage, folder: Path, *, roles: bool, home_only: bool) -> Backup:
    """Back up a home.

    Args:
        storage: The home.
        folder: The folder of the backup; it is created, and only once the backup is complete.
        roles: Whether to include the stored roles and the key of role digests.
        home_only: Whether to back up a home whose database is on a server without that database.

    Raises:
        InvalidArgument: `folder` exists, the home does not, its database is on a server, or another run makes the same
            backup.
        StorageUnavailable, StorageInvalid: A file cannot be read or written, or a database is damaged.
    """
    if storage.url is not None and not home_only:
        raise InvalidArgument(
            f"the database {str(storage.place)!r} is on a Postgres server and is not part of this backup",
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
        await asyncio.gather(copying, return_exceptions=True)  # so that its unfinished folder is removed
        raise


class _Stopped(Exception):
    """The backup was cancelled."""


def _copied(storage: Storage, folder: Path, roles: bool, check: _Check) -> Backup:
    home, folder = storage.resolve(), folder.absolute()
    if not home.is_dir():
        raise InvalidArgument(f"there is no home at {str(home)!r}", remedy="name it with --home or the setting home")
    failure: OSError | None = None
    try:
        _check_free(folder)
        with _atomic_folder(folder) as new:
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
        f"the backup at {str(folder)!r} could not be made ({problem})",
        remedy=_REMEDIES.get(failure.errno or 0, OTHER_FOLDER_REMEDY),
    )


def _check_free(folder: Path) -> None:
    if "\0" in str(folder):
        raise InvalidArgument("the folder's name must not contain a NUL character", remedy="pass the path of a folder")
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise InvalidArgument(f"{str(folder)!r} exists already", remedy="name a folder that does not exist")


def _fill(new: Path, storage: Storage, roles: bool, check: _Check) -> tuple[str, ...]:
    """Copy into a new folder; returns the hashes of attachments that the copied messages need and the copy lacks."""
    # The queue first: a start that is taken in between is one turn, while one that is missing in it would be lost.
    databases = [storage.queue, storage.database] if storage.url is None else []
    databases += [storage.roles] if roles else []
    for source in filter(Path.is_file, databases):
        _copy_database(source, new / source.name, check)
    if roles and storage.role_key.is_file():
        _copy_file(storage.role_key, new / storage.role_key.name)
    if storage.attachments_url is None:
        _copy_pieces(storage.attachments, new / _ATTACHMENTS, check)
    elif storage.url is None:
        _fetch_pieces(pieces_of(storage), FolderPieces(new / _ATTACHMENTS), check)
    missing = _missing(new, storage)
    check()
    return missing


def _copy_database(source: Path, target: Path, check: _Check) -> None:
    target.touch(mode=0o600)
    failure: WorldAgentError | None
    try:
        with contextlib.closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_SECONDS)) as live:
            live.execute("PRAGMA query_only=ON")
            # All steps copy one snapshot, so that later writes do not restart the copy.
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
        sync(target)
        return
    raise failure or StorageUnavailable(
        f"the copy of {str(source)!r} is damaged", remedy="check both disks, and see `worldagent doctor`"
    )


def _copy_pages(live: sqlite3.Connection, target: Path, check: _Check) -> None:
    try:
        with contextlib.closing(sqlite3.connect(target)) as copy:
            live.backup(copy, pages=COPY_STEP_PAGES, progress=lambda *_: check())
            return
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) not in _UNWRITTEN:
            raise
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reading(database: Path) -> contextlib.closing[sqlite3.Connection]:
    """Open a database that no process writes to; this creates no files next to it, since space may be short."""
    return contextlib.closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True))


def _copy_file(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    shutil.copyfile(source, target)
    sync(target)


def _copy_pieces(source: Path, target: Path, check: _Check) -> None:
    """Copy the contents of attachments, except unfinished and dropped ones, whose names begin with a dot."""
    for piece in sorted(source.glob("*/*")):
        if piece.name.startswith(".") or not piece.is_file():
            continue
        check()
        place = target / piece.parent.name
        for made in (target, place):
            made.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            _copy_file(piece, place / piece.name)


def _fetch_pieces(source: Pieces, target: Pieces, check: _Check) -> None:
    """Copy the contents of attachments that are not in the home, so that the backup is a home without their url."""
    for sha256 in sorted(source.names()):
        check()
        data = source.read(sha256)
        if data is not None:  # it was removed meanwhile, or has changed
            target.keep(sha256, data)


def _missing(new: Path, storage: Storage) -> tuple[str, ...]:
    """Return the hashes of attachments that the copied messages refer to and that the copy does not have."""
    database = new / storage.database.name
    if not database.is_file():
        return ()
    there = {piece.name for piece in (new / _ATTACHMENTS).glob("*/*")}
    with _reading(database) as copy:
        if not copy.execute("SELECT 1 FROM sqlite_master WHERE name='wa_attachment'").fetchall():
            return ()
        return tuple(sorted(sha256 for (sha256,) in copy.execute(_REFERRED) if sha256 not in there))


@contextlib.contextmanager
def _atomic_folder(folder: Path) -> Generator[Path]:
    """Yield a new folder to fill, which gets its final name at the end of the block if nothing was raised.

    An unfinished folder has a name that begins with `.worldagent-backup-` and is removed with the block. One that a
    killed run left is removed by the next run that makes the same backup.

    Args:
        folder: The final name; it must not exist, or be an empty folder.

    Raises:
        InvalidArgument: Another run makes the same backup.
        OSError: The folder cannot be created.
    """
    folder.parent.stat()  # raises if it is missing; otherwise the lock would create it
    # A digest, since a name can have the maximum length already.
    digest = hashlib.blake2b(os.fsencode(folder.name), digest_size=8).hexdigest()
    beginning = f".worldagent-backup-{digest}."
    with _locked(folder, beginning) as alone:
        for left in folder.parent.glob(f"{beginning}*/") if alone else ():
            shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=beginning, dir=folder.parent))  # only its owner can read it
        try:
            yield new
            sync(new)
            os.rename(new, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)  # nothing is left of it once it is renamed


@contextlib.contextmanager
def _locked(folder: Path, beginning: str) -> Generator[bool]:
    """Exclude other runs; yields whether that worked, since some file systems do not support locks."""
    place = folder.with_name(f"{beginning}lock")
    lock = FileLock(place, mode=0o600, thread_local=False, fallback_to_soft=False)
    busy = False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        busy = True
    except OSError:
        pass  # locks are not supported, or nothing can be written at all
    if busy:
        raise InvalidArgument(
            f"another run makes the backup {str(folder)!r}", remedy="wait until it has ended, or name another folder"
        )
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with contextlib.suppress(OSError):  # some systems cannot delete a file in use
                place.unlink()
            lock.release()


__all__ = ["Backup", "back_up"]
