"""Locks between processes, which are released when their holder dies. `leases` uses them."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from .failures import from_system


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
