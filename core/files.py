"""File helpers: read a file of unknown kind, replace one atomically, check permissions, translate system errors."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Generator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from .errors import StorageUnavailable

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@cache
def packaged_table(package: str, name: str) -> Mapping[str, Any]:
    """The content of a TOML file that ships with the package; it is read once.

    Args:
        package: The folder it is in, as `__package__` has it.
        name: The file's name.
    """
    import tomllib  # here, because the package is imported more often than a table is read

    return tomllib.loads((files(package) / name).read_text(encoding="utf-8"))


def read_regular(path: Path, most: int = -1) -> bytes | None:
    """Read a file if it is a regular file. It does not wait for a pipe and does not read an endless device.

    Args:
        path: The file.
        most: How many bytes to read at most; a negative number reads all.

    Returns:
        The content or its first bytes; None if it is not a regular file.

    Raises:
        OSError: It cannot be opened or read.
        ValueError: `path` has a null byte.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # `os.fdopen` would raise for a folder
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(handle)


def read_limited(path: str | os.PathLike[str], most: int) -> bytes | str:
    """Read a regular file, or enough of it to know that it is too large.

    Args:
        path: The file.
        most: How many bytes it can have.

    Returns:
        The content; a text says why it cannot be read.
    """
    try:
        file = Path(path)
        data = read_regular(file, most + 1)
    except OSError as error:
        return error.strerror or type(error).__name__
    except (TypeError, ValueError):  # a caller can ignore the type hint
        return "it is not a path"
    if data is None:
        return "it is not a regular file, but a directory" if file.is_dir() else "it is not a regular file"
    return data if len(data) <= most else f"it has more than {most} bytes"


def accessible_to_others(path: Path) -> bool:
    """Whether users other than the owner can read or change a file. False if it is gone or the system has no modes.

    Args:
        path: The file or folder.
    """
    if os.name == "posix":
        with contextlib.suppress(OSError):
            return bool(path.stat().st_mode & _OTHERS)
    return False


def replace_file(file: Path, data: bytes, *, prefix: str = "", replace: bool = True) -> None:
    """Write a file that only its owner can read, or replace it, atomically and durably.

    Args:
        file: The file. Its folder must exist.
        data: The new content.
        prefix: How the name of the unfinished file begins.
        replace: Whether to replace an existing file.

    Raises:
        FileExistsError: The file exists and `replace` is false.
        OSError: It cannot be written; an existing file is unchanged.
    """
    prefix = prefix or f".{file.name[:30]}."  # a character can have four bytes
    handle, draft = tempfile.mkstemp(prefix=prefix, dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        (os.replace if replace else os.link)(draft, file)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power failure. Some systems cannot open folders for that.

    Raises:
        OSError: It cannot be opened or written.
    """
    if os.name != "posix" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def storage_errors(problem: str, *, remedy: str) -> Generator[None]:
    """Replace an `OSError` in the block with `StorageUnavailable`.

    Args:
        problem: What cannot be done. The system's reason is appended to it.
        remedy: The remedy.

    Raises:
        StorageUnavailable: The block raised an `OSError`.
    """
    reason = ""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise StorageUnavailable(f"{problem} ({reason})", remedy=remedy)
