"""A store of entries that belongs to the host: what it returns is checked, and what it raises gets a type (M4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ...core.errors import MemorySourceFailed, WorldAgentError
from ...core.validation import is_text
from .entry import CLASSIFICATIONS, Draft, Entry, Reader
from .recall import MemorySource
from .store import Change, EntryFilter

T = TypeVar("T")


class HostSource:
    """Asks a store of the host's. Each method is that of `MemorySource`, and also raises `MemorySourceFailed`.

    Entries that the reader may not see are refused, so that a mistake in the store shows no account those of another,
    and no member of a workspace more than its clearance admits.

    Args:
        source: The store.
    """

    def __init__(self, source: MemorySource) -> None:
        self._source = source

    async def search(self, reader: Reader, text: str, /, *, limit: int = 10) -> Sequence[tuple[Entry, float]]:
        """See `MemorySource.search`."""
        found = await self._listed(lambda: self._source.search(reader, text, limit=limit))
        if not all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], int | float) for each in found):
            raise self._failed("returned something else than pairs of entries and scores")
        self._check([each[0] for each in found], reader)
        return found[:limit]

    async def get(self, reader: Reader, ids: Sequence[str], /) -> Sequence[Entry]:
        """See `MemorySource.get`."""
        found = self._check(await self._listed(lambda: self._source.get(reader, ids)), reader)
        by_id = {entry.id: entry for entry in found}
        return [by_id[entry_id] for entry_id in ids if entry_id in by_id]

    async def list(
        self,
        reader: Reader,
        wanted: EntryFilter,
        /,
        *,
        limit: int = 100,
        before: Entry | None = None,
        replaced: bool = False,
    ) -> Sequence[Entry]:
        """See `MemorySource.list`."""
        given: dict[str, Any] = {"limit": limit, "before": before, "replaced": replaced}
        found = self._check(await self._listed(lambda: self._source.list(reader, wanted, **given)), reader)
        if before is not None and before.id in {entry.id for entry in found}:
            raise self._failed("listed an entry again instead of those after it")
        return found[:limit]

    async def add(self, workspace: str, drafts: Sequence[Draft], /) -> Sequence[Entry]:
        """See `MemorySource.add`."""
        made = await self._listed(lambda: self._source.add(workspace, drafts))
        if len(made) != len(drafts):
            raise self._failed(f"returned {len(made)} entries for {len(drafts)} drafts")
        for entry, draft in zip(made, drafts, strict=True):
            self._check([entry], Reader(workspace=workspace, account=draft.account))
        return made

    async def edit(
        self,
        workspace: str,
        entry_id: str,
        change: Change,
        /,
        *,
        version: int | None = None,
        reader: Reader | None = None,
    ) -> Entry:
        """See `MemorySource.edit`."""
        made = await self._asked(lambda: self._source.edit(workspace, entry_id, change, version=version, reader=reader))
        return self._check([made], reader)[0]

    async def forget(self, workspace: str, ids: Sequence[str], reader: Reader | None = None, /) -> int:
        """See `MemorySource.forget`."""
        count = await self._asked(lambda: self._source.forget(workspace, ids, reader))
        if not isinstance(count, int):
            raise self._failed("returned something else than how many entries it deleted")
        return count

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except WorldAgentError:
            raise
        except Exception as error:  # not named: a store of the host's can raise any type
            kind = type(error).__name__
        raise self._failed(f"failed with {kind}")

    async def _listed(self, call: Callable[[], Awaitable[Iterable[Any]]]) -> Sequence[Any]:
        found = await self._asked(call)
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise self._failed("returned something else than a list")
        return [*found]

    def _check(self, found: Sequence[Any], reader: Reader | None) -> Sequence[Entry]:
        for entry in found:
            if not (isinstance(entry, Entry) and isinstance(entry.text, str) and is_text(entry.text)):
                raise self._failed("returned something else than entries")
            if reader is not None and not _visible(entry, reader):
                raise self._failed("returned an entry that its reader may not see")
        return found

    def _failed(self, problem: str) -> MemorySourceFailed:
        return MemorySourceFailed(
            f"the memory source {type(self._source).__name__!r} {problem}",
            remedy="mend it as MemorySource describes, or try again if its store was down",
        )


def _visible(entry: Entry, reader: Reader) -> bool:
    return reader.sees(entry.account, entry.kind, CLASSIFICATIONS.index(entry.classification), entry.domain)
