"""Locks between processes that the death of their holder frees: what `leases` stands on."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from .failures import from_system


class Held(Protocol):
    """A lock that is held."""

    async def release(self) -> None:
        """Let go of it."""
        ...

    def forget(self) -> None:
        """Leave nothing behind that names its key; it is held until its release all the same."""
        ...


class Locks(Protocol):
    """Locks by key."""

    async def acquire(self, key: str) -> Held | None:
        """Take the lock of `key`; None while somebody else has it. One process asks for a key once at a time.

        Raises:
            StorageUnavailable: Locks cannot be had.
        """
        ...

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """Which of `keys` somebody has locked.

        Raises:
            StorageUnavailable: Locks cannot be looked at.
        """
        ...


class FileLocks:
    """A locked file for each key; the kernel frees it with its process.

    Args:
        folder: Where the files stand; made where missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def acquire(self, key: str) -> Held | None:
        """See `Locks.acquire`."""
        lock = self._lock(key)
        return _HeldFile(lock) if self._acquired(lock) else None

    async def owned(self, keys: frozenset[str]) -> frozenset[str]:
        """See `Locks.owned`. A lock that nobody has is taken for the moment of the look."""
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
        # Without the fallback, which is a mere file: it would outlive a killed process.
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
        # Who has opened the file already finds, once the lock is theirs, that it has no name, and asks for a new one.
        # Where a file in use cannot be deleted it stays; its name is a digest.
        with contextlib.suppress(OSError):
            Path(self._lock.lock_file).unlink(missing_ok=True)
