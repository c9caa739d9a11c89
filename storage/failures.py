"""Translates failures of SQLite and of the file system that the host must fix into errors of this package."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..core.errors import HostError, StorageInvalid, StorageUnavailable

_WRITABLE = "make its folder and files writable for this user, or use another home"
_RESTORE = "restore the file from a copy, move it away, or use another home"
_REMEDIES = {
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _WRITABLE,
    sqlite3.SQLITE_BUSY: "end the process that holds it, or try again when that is done",
    sqlite3.SQLITE_LOCKED: "end the process that holds it, or try again when that is done",
    sqlite3.SQLITE_FULL: "free space on its disk",
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
        return StorageInvalid(
            f"file {str(path)!r} is not a valid SQLite database ({error})",
            remedy=_RESTORE,
        )
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
    return StorageUnavailable(f"{str(path)!r} cannot be used ({reason})", remedy=_WRITABLE)
