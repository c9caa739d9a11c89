"""Files: reading one of unknown kind without waiting, who else may read one, and errors of the system made typed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final

from .errors import StorageUnavailable

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_regular(path: Path, most: int = -1) -> bytes | None:
    """Read a file. A pipe is not waited for, and what never ends is not read.

    Args:
        path: The file.
        most: How many bytes at most; below 0 is all.

    Returns:
        Its content, or the beginning of it; None where it is no regular file.

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


def others_may(path: Path) -> bool:
    """Whether others than its owner may read or change a file; False where it is gone, or files have no modes here.

    Args:
        path: The file, or a folder.
    """
    if os.name == "posix":
        with contextlib.suppress(OSError):
            return bool(path.stat().st_mode & _OTHERS)
    return False


@contextlib.contextmanager
def storage_errors(problem: str, *, remedy: str) -> Generator[None]:
    """Replace an `OSError` of the block by a `StorageUnavailable`.

    Args:
        problem: What cannot be done. The reason that the system gives is put behind it.
        remedy: What helps.

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


__all__ = ["others_may", "read_regular", "storage_errors"]
