"""Which sidecars of a home run: one file each, which its process has locked for as long as it lives.

The system frees the lock of a process that ends, kill -9 included, so what is left of one is known and tidied. Its id
would not do: another process may have it by now, and a sidecar in a container has one that means nothing outside.
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

State = Literal["ready", "draining"]

_WAIT: Final = 5.0  # seconds that one who tidies may have a lock
_LONGEST: Final = 1 << 20  # bytes that are read of a file


class RunningSidecar(BaseModel):
    """A sidecar as it tells others of itself. It holds no token.

    Attributes:
        pid: Its process.
        transport: How it is reached.
        address: Its MCP endpoint; None over standard streams.
        workspaces: Which it serves; `*` is any.
        since: When it began to serve.
        state: Whether it takes turns, or comes to its end.
        version: The package's.
    """

    model_config = ConfigDict(frozen=True)  # a later version may have more to tell

    pid: int = Field(ge=0)
    transport: Literal["http", "stdio"]
    address: str | None
    workspaces: tuple[str, ...]
    since: datetime
    state: State
    version: str


class SidecarFile:
    """The file of this process's sidecar, in each home that it has agents in.

    Args:
        told: What stands in it.
    """

    def __init__(self, told: RunningSidecar) -> None:
        self._told = told
        self._name = f"{told.pid}-{secrets.token_hex(4)}"
        self._locks: dict[Path, FileLock] = {}

    def add(self, folder: Path) -> None:
        """Tell of the sidecar in a folder, unless it does so already.

        Args:
            folder: `Storage.sidecars` of a home; made where missing.

        Raises:
            StorageUnavailable: It cannot be written.
        """
        if folder in self._locks:
            return
        problem = ""
        lock = _lock(folder / f"{self._name}.lock")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire(timeout=_WAIT)
            self._locks[folder] = lock
            self._write(folder)
        except (OSError, NotImplementedError) as error:  # filelock's, where the file system has no locks
            problem = getattr(error, "strerror", None) or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the folder {str(folder)!r} cannot be written: {problem}",
                remedy="make it writable for this user, or use another home",
            )

    def set(self, state: State) -> None:
        """Tell of another state. Where that cannot be written, what was told stays."""
        self._told = self._told.model_copy(update={"state": state})
        for folder in self._locks:
            with contextlib.suppress(OSError):
                self._write(folder)

    def remove(self) -> None:
        """Take the files away."""
        for folder, lock in self._locks.items():
            _remove(folder / f"{self._name}.json", lock)
        self._locks.clear()

    def _write(self, folder: Path) -> None:
        draft = folder / f"{self._name}.new"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(self._told.model_dump_json())
        draft.replace(folder / f"{self._name}.json")


def running_sidecars(folder: Path) -> tuple[RunningSidecar, ...]:
    """The sidecars that run, the newest first. What is left of those that were killed is taken away.

    Args:
        folder: `Storage.sidecars` of a home.
    """
    found = filter(None, map(_running, _names(folder)))
    return tuple(sorted(found, key=lambda sidecar: sidecar.since, reverse=True))


def _names(folder: Path) -> Iterator[Path]:
    """The paths of what there may be a sidecar of, without their suffixes."""
    with contextlib.suppress(OSError):
        yield from sorted({file.with_suffix("") for file in folder.iterdir() if file.suffix in (".json", ".lock")})


def _running(name: Path) -> RunningSidecar | None:
    """The sidecar of this name; None where it does not run, and what it left is taken away then."""
    file, lock = name.with_suffix(".json"), _lock(name.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(file)
    except (OSError, NotImplementedError):  # another user's, or as above: it is left alone
        return None
    _remove(file, lock)
    return None


def _read(file: Path) -> RunningSidecar | None:
    try:
        with file.open("rb") as opened:
            return RunningSidecar.model_validate_json(opened.read(_LONGEST))
    except (OSError, ValidationError):  # it is on its way, or not ours
        return None


def _remove(file: Path, lock: FileLock) -> None:
    """Take away what a lock that is held belongs to, and the lock."""
    for each in (file.with_suffix(".new"), file, Path(lock.lock_file)):
        with contextlib.suppress(OSError):  # where a file in use cannot be deleted, the next look takes it away
            each.unlink(missing_ok=True)
    lock.release()


def _lock(file: Path) -> FileLock:
    # Without the fallback, which is a mere file: it would outlive a killed process.
    return FileLock(file, mode=0o600, thread_local=False, fallback_to_soft=False)
