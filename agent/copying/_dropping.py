"""Giving up a copy that is not finished."""

from __future__ import annotations

from ...core.errors import InvalidArgument, StorageUnavailable
from ...storage import PostgresAddress, Storage, Transaction
from ...storage.copies import copying_alone
from ._ends import Standing, look, named, opened


async def drop_copy(storage: Storage) -> None:
    """Remove what a copy has begun to write, so that the place is as it was before.

    Raises:
        InvalidArgument: No copy into it was begun, or it is finished.
        StorageHalfCopied: A run copies into it.
        StorageUnavailable: It cannot be removed.
    """
    await _half(storage)
    async with copying_alone(storage):
        await _drop(storage, await _half(storage))


async def _half(storage: Storage) -> Standing:
    found = await look(storage)
    if not found.half_copied:
        raise InvalidArgument(
            f"{named(storage)!r} is no copy that was begun and is not finished, so nothing of it is dropped",
            remedy="remove the home or the database by other means if it is not wanted",
        )
    return found


async def _drop(storage: Storage, found: Standing) -> None:
    if not isinstance(storage.place, PostgresAddress):
        return _unlink(storage)

    def work(transaction: Transaction) -> None:
        transaction.execute(f"DROP TABLE {', '.join(sorted(found.made))} CASCADE")

    async with opened(storage) as database:
        await database.transact(work)


def _unlink(storage: Storage) -> None:
    problem = ""
    try:
        # The file itself at last: without the others it is still half a copy.
        for suffix in ("-wal", "-shm", ""):
            storage.database.with_name(storage.database.name + suffix).unlink(missing_ok=True)
        return
    except OSError as error:
        problem = error.strerror or type(error).__name__
    raise StorageUnavailable(
        f"{str(storage.database)!r} cannot be removed ({problem})", remedy="end who uses it, or make the home writable"
    )


__all__ = ["drop_copy"]
