"""Locks between processes, which are released when their holder dies. `lease` uses them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from ..core.errors import HostError, StorageInvalid, StorageUnavailable

_WRITABLE = "make its folder and files writable for this user, or use another home"
_RESTORE = "restore the file from a copy, move it away, or use another home"
_DESCRIPTORS = "raise the limit of open files (`ulimit -n`), or run fewer agents in a process; then try again"
_A_FILE = "name a folder; a part of this path is a file"
_SPACE = "free space on its disk"
_SYSTEM_REMEDIES = {
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOTDIR: _A_FILE,
    errno.EEXIST: _A_FILE,  # what creating the folder fails with
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EROFS: "use a home on a disk that can be written",
    errno.ENAMETOOLONG: "use a home with a shorter path",
    errno.ELOOP: "use a home whose links lead to a folder",
    errno.EIO: "check its disk, and that it is a local one",
}
"""What to do about an error of the system; about all others make it writable."""
_REMEDIES = {
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _WRITABLE,
    sqlite3.SQLITE_BUSY: "end the process that holds it, or try again when that is done",
    sqlite3.SQLITE_LOCKED: "end the process that holds it, or try again when that is done",
    sqlite3.SQLITE_FULL: _SPACE,
    sqlite3.SQLITE_IOERR: "check its disk, and that it is a local one",
    sqlite3.SQLITE_PROTOCOL: "put the home on a local disk",
    sqlite3.SQLITE_NOLFS: "put the home on a file system for large files",
}
_INVALID = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def from_sqlite(error: sqlite3.Error, path: Path) -> HostError | None:
    """The error of this package for `error`; None if `error` is a programming mistake, which it describes better."""
    if str(error).startswith("Could not decode to UTF-8"):  # it has no code
        return not_text(path)
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    primary = code & 0xFF
    if primary in _INVALID:
        return StorageInvalid(f"file {str(path)!r} is not a valid SQLite database ({error})", remedy=_RESTORE)
    if primary == sqlite3.SQLITE_CANTOPEN and (cause := _cause(path)) is not None:
        return from_system(cause, path)
    if primary in _REMEDIES:
        return StorageUnavailable(f"database {str(path)!r} failed ({error})", remedy=_REMEDIES[primary])
    return None


def is_busy(error: BaseException | None) -> bool:
    """Whether another process locked the file for longer than the timeout."""
    code: int = getattr(error, "sqlite_errorcode", 0)  # errors that Python itself raises have no code
    return code & 0xFF == sqlite3.SQLITE_BUSY


def schema_mismatch(error: sqlite3.Error, path: Path) -> StorageInvalid:
    """The error for tables that have our names but another definition."""
    return StorageInvalid(f"the tables in {str(path)!r} differ from those of this package ({error})", remedy=_RESTORE)


def not_text(path: Path) -> StorageInvalid:
    """The error for a text that is not UTF-8. SQLite's own error would show the text."""
    return StorageInvalid(f"a text in {str(path)!r} is not UTF-8", remedy=_RESTORE)


def from_system(error: OSError, path: Path) -> StorageUnavailable:
    """The error for a folder or file that the system cannot open or write."""
    reason = error.strerror or type(error).__name__
    remedy = _SYSTEM_REMEDIES.get(error.errno or 0, _WRITABLE)
    return StorageUnavailable(f"{str(path)!r} cannot be used ({reason})", remedy=remedy)


def _cause(path: Path) -> OSError | None:
    """Why SQLite could not open a file, which it does not say. The file itself is not opened: see `_connect_writer`."""
    try:
        os.close(os.open(path.parent, os.O_RDONLY))
        os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


class HeldLock(Protocol):
    """A lock that is held."""

    async def release(self) -> None:
        """Release the lock."""
        ...

    def forget(self) -> None:
        """Delete everything that names its key. The lock is still held until `release`."""
        ...


class Locks(Protocol):
    """Locks by key."""

    async def acquire(self, key: str) -> HeldLock | None:
        """Take the lock of `key`; None if another process has it. A process must ask for a key only once at a time.

        Raises:
            StorageUnavailable: The lock cannot be taken.
        """
        ...

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """Which of `keys` are locked.

        Raises:
            StorageUnavailable: The locks cannot be checked.
        """
        ...


class FileLocks:
    """One lock file for each key. The kernel releases the lock when the process ends.

    Args:
        folder: The folder of the files; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def acquire(self, key: str) -> HeldLock | None:
        """See `Locks.acquire`."""
        lock = self._lock(key)
        return _HeldFile(lock) if self._acquired(lock) else None

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """See `Locks.owned`. The check takes a free lock for a moment."""
        return frozenset(filter(self._owned, keys))

    def _owned(self, key: str) -> bool:
        lock = self._lock(key)
        if not Path(lock.lock_file).exists():
            return False
        if not self._acquired(lock):
            return True
        lock.release()
        return False

    def _lock(self, key: str) -> FileLock:
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        # Without the fallback to a plain file, which would outlive a killed process.
        return FileLock(self._folder / f"{name}.lock", mode=0o600, thread_local=False, fallback_to_soft=False)

    def _acquired(self, lock: FileLock) -> bool:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            raise from_system(error, self._folder) from error
        return True


class _HeldFile:
    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    async def release(self) -> None:
        self._lock.release()

    def forget(self) -> None:
        # A process that opened the file before finds, once it has the lock, that the file has no name, and opens a new
        # one. On a system that cannot delete an open file, the file stays. Its name is only a digest.
        with contextlib.suppress(OSError):
            Path(self._lock.lock_file).unlink(missing_ok=True)
