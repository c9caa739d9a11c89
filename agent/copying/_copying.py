"""A copy of all that agents keep: begun, gone on with after a stop, compared, and only then opened to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core.errors import InvalidArgument, StorageInvalid
from ...graphs.copies import CheckpointCopy
from ...storage import Database, Schema, Storage
from ...storage.copies import COPYING, Held, Mark, Part, TableCopy, copying_alone, tables_of
from ._ends import check_idle, check_source, check_unused, look, named, opened

Progress = Callable[[str, int, int], object]
"""Told what is copied, how much of it is there, and how much there is, after each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy that was made.

    Attributes:
        source: What was copied.
        target: Where to.
        resumed: Whether an earlier run had begun it.
        parts: What the target holds: tables and checkpoints by name.
    """

    source: str
    target: str
    resumed: bool
    parts: dict[str, Held]


async def copy_storage(source: Storage, target: Storage, *, progress: Progress | None = None) -> Copied:
    """Copy conversations, turns, calls and checkpoints; roles, the role key and attachments stay in the home.

    Stop the agents on both ends before. Until the copy is whole the target cannot be opened; the same call goes on with
    one that was stopped.

    Args:
        source: What to copy. It is not changed, but for tables of checkpoints where it has none.
        target: Where to; empty, or a copy of the same source that is not finished.
        progress: Told how far it is.

    Raises:
        InvalidArgument: There is no source, both are the same, or the target is in use or a copy of something else.
        ThreadBusy: Turns run in the source.
        StorageHalfCopied: The source is itself half a copy, or another run copies into the target.
        SchemaTooNew: The source was written by a newer version of this package.
        StorageInvalid: In the end both do not hold the same, since agents wrote meanwhile.
        StorageUnavailable: One of them is out of reach. The copy can go on.
    """
    if source.place == target.place:
        raise InvalidArgument(f"{named(source)!r} cannot be copied into itself", remedy="name another target")
    schemas = check_source(await look(source), named(source))
    await check_unused(target)
    async with opened(source) as old:
        await check_idle(old, source, schemas)
        async with copying_alone(target):
            await check_unused(target)  # once more, now that no other run can finish it meanwhile
            async with opened(target, (*schemas, COPYING)) as new:
                return await _copied((old, source), (new, target), schemas, progress or (lambda *_: None))


async def _copied(
    source: tuple[Database, Storage], target: tuple[Database, Storage], schemas: tuple[Schema, ...], progress: Progress
) -> Copied:
    mark = Mark(target[0])
    begun = await _begun(mark, named(source[1]), named(target[1]))
    tables = [TableCopy(table, source[0], target[0]) for table in tables_of(schemas)]
    parts: list[Part] = [*tables, await CheckpointCopy.open(source[0], target[0])]
    for part in parts:
        await _copy(part, mark, progress)
    held = {part.name: await _compared(part, source[0].name, target[0].name) for part in parts}
    await check_idle(*source, schemas)
    await mark.remove()
    return Copied(source=named(source[1]), target=named(target[1]), resumed=begun, parts=held)


async def _begun(mark: Mark, source: str, target: str) -> bool:
    """Note what is copied, unless this is known; whether an earlier run has begun.

    Raises:
        InvalidArgument: The target is a copy of something else.
    """
    known = await mark.begin(source)
    if known not in (None, source):
        raise InvalidArgument(
            f"{target!r} is a copy of {known!r} that is not finished",
            remedy="finish that one, or give it up with `worldagent storage drop`",
        )
    return known is not None


async def _copy(part: Part, mark: Mark, progress: Progress) -> None:
    """Copy a part, from where an earlier run left it."""
    last, done, whole = await mark.reached(part.name)
    if whole:
        return
    total = await part.count()
    async for batch, reached in part.batches(last):
        await part.put(batch, mark.verify)
        last, done = reached, done + len(batch)
        await mark.note(part.name, last, done)
        progress(part.name, done, total)
    await mark.note(part.name, last, done, whole=True)


async def _compared(part: Part, source: str, target: str) -> Held:
    """What both hold of a part.

    Raises:
        StorageInvalid: It is not the same.
    """
    old, new = await part.held()
    if old != new:
        raise StorageInvalid(
            f"{part.name!r} of {target!r} is not what {source!r} has: {new.rows} rows here, {old.rows} there",
            remedy="stop the agents on both, give the copy up with `worldagent storage drop`, and begin again",
        )
    return new


__all__ = ["Copied", "Progress", "copy_storage"]
