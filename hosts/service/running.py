"""The files by which `worldagent ps` finds the running sidecars of a home.

A running sidecar has one file in each home that it has agents in, and its process locks the file as long as it lives.
The system frees the lock of a process that ends, even after kill -9, so the files of ended processes are found and
removed. A process id would not work: another process can have it by now, and the id of a sidecar in a container means
nothing outside the container.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import StorageUnavailable

LOCK_WAIT_SECONDS: Final = 5.0  # seconds to wait for a process that is removing old files
MAX_FILE_BYTES: Final = 1 << 20  # bytes that are read of a file


class RunningSidecar(BaseModel):
    """A running sidecar, as it describes itself to other processes. It holds no token.

    Attributes:
        pid: The id of its process.
        transport: How it is reached.
        address: Its MCP endpoint; None over standard streams.
        web: The address of the web app; None if it serves none.
        workspaces: The workspaces that it serves; `*` is any.
        since: When it began to serve.
        state: Whether it accepts turns, or is stopping.
        version: The version of the package.
    """

    model_config = ConfigDict(frozen=True)  # a later version can have more fields

    pid: int = Field(ge=0)
    transport: Literal["http", "stdio"]
    address: str | None
    web: str | None = None
    workspaces: tuple[str, ...]
    since: datetime
    state: Literal["ready", "draining"]
    version: str


class SidecarFile:
    """The file of this process's sidecar, in each home that it has agents in.

    Args:
        record: The contents of the file.
    """

    def __init__(self, record: RunningSidecar) -> None:
        self._record = record
        self._name = f"{record.pid}-{secrets.token_hex(4)}"
        self._locks: dict[Path, FileLock] = {}

    def add(self, folder: Path) -> None:
        """Write the file into a folder, unless it is there already.

        Args:
            folder: `Storage.sidecars` of a home; created if it is missing.

        Raises:
            StorageUnavailable: The folder cannot be written.
        """
        if folder in self._locks:
            return
        problem = ""
        lock = _lock(folder / f"{self._name}.lock")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire(timeout=LOCK_WAIT_SECONDS)
            self._locks[folder] = lock
            self._write(folder)
        except (OSError, NotImplementedError) as error:  # filelock raises the latter if the file system has no locks
            problem = getattr(error, "strerror", None) or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the folder {str(folder)!r} cannot be written: {problem}",
                remedy="make it writable for this user, or use another home",
            )

    def set(self, **changes: str) -> RunningSidecar:
        """Change fields of the record, and return it. If it cannot be written, the file keeps the old ones."""
        self._record = self._record.model_copy(update=changes)
        for folder in self._locks:
            with contextlib.suppress(OSError):
                self._write(folder)
        return self._record

    def remove(self) -> None:
        """Remove the files."""
        for folder, lock in self._locks.items():
            _remove(folder / f"{self._name}.json", lock)
        self._locks.clear()

    def _write(self, folder: Path) -> None:
        draft = folder / f"{self._name}.new"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(self._record.model_dump_json())
        draft.replace(folder / f"{self._name}.json")


def running_sidecars(folder: Path) -> tuple[RunningSidecar, ...]:
    """The running sidecars, the newest first. The files of killed sidecars are removed.

    Args:
        folder: `Storage.sidecars` of a home.
    """
    found = filter(None, map(_running, _names(folder)))
    return tuple(sorted(found, key=lambda sidecar: sidecar.since, reverse=True))


def _names(folder: Path) -> Iterator[Path]:
    """The paths of all files that a sidecar can have, without their suffixes."""
    with contextlib.suppress(OSError):
        yield from sorted({file.with_suffix("") for file in folder.iterdir() if file.suffix in (".json", ".lock")})


def _running(name: Path) -> RunningSidecar | None:
    """The sidecar of this name; None if it does not run, and its files are then removed."""
    file, lock = name.with_suffix(".json"), _lock(name.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(file)
    except (OSError, NotImplementedError):  # another user's file, or no locks as above: ignore it
        return None
    _remove(file, lock)
    return None


def _read(file: Path) -> RunningSidecar | None:
    try:
        with file.open("rb") as opened:
            return RunningSidecar.model_validate_json(opened.read(MAX_FILE_BYTES))
    except (OSError, ValidationError):  # it is being written, or is not one of our files
        return None


def _remove(file: Path, lock: FileLock) -> None:
    """Remove the files that a held lock protects, and the lock."""
    for each in (file.with_suffix(".new"), file, Path(lock.lock_file)):
        with contextlib.suppress(OSError):  # if a file in use cannot be deleted, the next look removes it
            each.unlink(missing_ok=True)
    lock.release()


def _lock(file: Path) -> FileLock:
    # No soft fallback: it is only a file, and would outlive a killed process.
    return FileLock(file, mode=0o600, thread_local=False, fallback_to_soft=False)
