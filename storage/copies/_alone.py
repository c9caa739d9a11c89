"""One run at a time that copies into a place. Its lock is free again when the process dies, so a copy can go on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from ...core.errors import StorageHalfCopied
from .._address import PostgresAddress
from .._database import Database
from .._home import Storage
from .._locks import FileLocks, Locks

_KEY: Final = "storage copy"  # no thread's: those have a slash


@contextlib.asynccontextmanager
async def copying_alone(target: Storage) -> AsyncGenerator[None]:
    """Keep every other run out of the target for the block; a home is made where there is none.

    Raises:
        StorageHalfCopied: Another run copies into it.
        StorageUnavailable: It cannot be locked.
    """
    async with contextlib.AsyncExitStack() as stack:
        place = target.place
        locks: Locks = FileLocks(target.resolve())
        if isinstance(place, PostgresAddress):
            database = await Database.open(place, schemas=())
            stack.push_async_callback(database.aclose)
            locks = database.locks(None)
        held = await locks.acquire(_KEY)
        if held is None:
            raise StorageHalfCopied(
                f"another copy into {str(place)!r} runs", remedy="wait until it has ended, or stop it, and try again"
            )
        stack.push_async_callback(held.release)
        stack.callback(held.forget)
        yield


__all__ = ["copying_alone"]
