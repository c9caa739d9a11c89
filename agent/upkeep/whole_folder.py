"""A folder that appears under its name only once it is whole; of killed runs nothing stays. All of it blocks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from ...core.errors import InvalidArgument


@contextlib.contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
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
            sync(new)
            os.rename(new, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)  # once it has its name, nothing of this one is there


def sync(path: Path) -> None:
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


__all__ = ["sync", "whole_folder"]
