"""Opens and writes the file at a place that `Roots` found. The texts for models are in `functions` and `text`.

Only regular files are opened: opening a pipe or a device can hang, or have effects. A file is replaced atomically, so
that no reader sees a part of it.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

from ...core.errors import ToolFailed
from .handle import Handle
from .roots import Place, reporting_errors, shown

if sys.platform != "win32":
    import fcntl

_FRESH: Final = os.O_EXCL | os.O_CREAT | os.O_WRONLY
_TRIES: Final = 200
_WAIT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file.

    Attributes:
        file: Reads it.
        found: Its status when it was opened.
    """

    file: BinaryIO
    found: os.stat_result


@contextmanager
def opened(place: Place, *, writable: bool = False) -> Generator[Opened]:
    """Open the file at a place to read it.

    Args:
        place: The place.
        writable: Whether this process must be able to write it.

    Raises:
        ToolFailed: It does not exist, is not a regular file, or cannot be read (or written).
    """
    handle = reporting_errors(place.given, lambda: _handle(place, os.O_RDWR if writable else os.O_RDONLY))
    with os.fdopen(handle, "rb") as file:
        yield Opened(file, os.fstat(handle))


def _handle(place: Place, flags: int) -> int:
    if not place.name or stat.S_ISDIR((before := place.handle.stat(place.name)).st_mode):
        raise ToolFailed(
            f"{shown(place.given)} is a folder", remedy="name a file; glob_files lists what is in a folder"
        )
    if stat.S_ISREG(before.st_mode):
        handle = place.handle.open(place.name, flags)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # the name may belong to another file by now
            return handle
        os.close(handle)
    raise ToolFailed(f"{shown(place.given)} is neither a file nor a folder", remedy="name another path")


def write(place: Place, content: bytes) -> bool:
    """Create the file at a place, or replace its content with `content`.

    Returns:
        Whether the file existed.

    Raises:
        ToolFailed: The place holds something other than a file, or cannot be written.
    """
    return reporting_errors(place.given, lambda: _write(place, content))


def _write(place: Place, content: bytes) -> bool:
    try:
        old = _handle(place, os.O_WRONLY)
    except FileNotFoundError:
        _put(place, content, None)
        return False
    with os.fdopen(old, "wb", closefd=True) as file:
        like = os.fstat(old)
        _put(place, content, like, _lockable(file))
    return True


def replace(place: Place, content: bytes, was: Opened) -> None:
    """Replace the file that was read with `content`.

    Args:
        place: The place of the file.
        content: The new content.
        was: The file, still open.

    Raises:
        ToolFailed: The file has changed since it was read, or cannot be written.
    """

    def changed() -> bool:
        return _state(place.handle.stat(place.name)) != _state(was.found)

    def put() -> None:
        _put(place, content, was.found, _lockable(was.file), changed)

    reporting_errors(place.given, put)


def _put(
    place: Place,
    content: bytes,
    like: os.stat_result | None,
    lock: int | None = None,
    changed: Callable[[], bool] = lambda: False,
) -> None:
    temporary_name = f".worldagent-{secrets.token_hex(8)}.tmp"
    with ExitStack() as undo:
        undo.callback(_drop, place.handle, temporary_name)
        _fill(place.handle, temporary_name, content, like)
        if lock is not None:
            _lock(lock, place.given)  # released when the file is closed
        if changed():
            raise ToolFailed(
                f"{shown(place.given)} was changed meanwhile", remedy="read it again, and edit what it says now"
            )
        place.handle.replace(temporary_name, place.name)
        undo.pop_all()


def _lockable(file: BinaryIO) -> int | None:
    """Return the file to lock while it is replaced, or None; Windows cannot replace an open file."""
    if sys.platform == "win32":
        file.close()
        return None
    return file.fileno()


def _lock(file: int, given: str) -> None:
    """Exclude others that replace the same file in this way, in this process or another one."""
    if sys.platform == "win32":
        return
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_WAIT)
        except OSError:  # the file system does not support locks
            return
        else:
            return
    raise ToolFailed(f"{shown(given)} is locked by another program", remedy="try again later")


def _fill(handle: Handle, name: str, content: bytes, like: os.stat_result | None) -> None:
    """Create a file with this content and, if it replaces a file, with that one's owner and permissions."""
    mode = 0o666 if like is None else stat.S_IMODE(like.st_mode) & 0o777
    made = handle.open(name, _FRESH, mode if like is None else mode & 0o700)
    with os.fdopen(made, "wb") as file:
        if like is not None and sys.platform != "win32":
            _give(made, like)
            os.fchmod(made, mode)
        file.write(content)
        file.flush()
        os.fsync(made)


def _give(made: int, like: os.stat_result) -> None:
    now = os.fstat(made)
    if sys.platform == "win32" or (now.st_uid, now.st_gid) == (like.st_uid, like.st_gid):
        return
    for owner in (like.st_uid, -1):  # without privileges, a process can give a file only to one of its groups
        try:
            os.fchown(made, owner, like.st_gid)
        except PermissionError:
            continue
        return


def _drop(handle: Handle, name: str) -> None:
    try:
        handle.remove(name)
    except OSError:
        return


def _state(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


__all__ = ["Opened", "opened", "replace", "write"]
