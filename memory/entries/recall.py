"""What a turn recalls: the entries that fit its message, within limits (M2)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, runtime_checkable

from ...core import ROOT, Scope, canonical_json
from ...core.errors import InvalidArgument
from ...core.marks import sources_in
from ...core.scope import account_of
from ...core.validation import check_line
from .entry import Draft, Entry, Reader, check_entry_text
from .store import Change, EntryFilter

RECALL: Final = "recall"
"""The name of the function by which a model searches entries, and of the step that a turn begins with."""


@runtime_checkable
class MemorySource(Protocol):
    """A store of memory entries. `Entries` is that of the agent's database; a host can have one of its own."""

    async def search(self, reader: Reader, text: str, /, *, limit: int = 10) -> Sequence[tuple[Entry, float]]:
        """The entries that fit a text best and their scores, the best first. Only those that the reader may see."""
        ...

    async def get(self, reader: Reader, ids: Sequence[str], /) -> Sequence[Entry]:
        """Those of some entries that exist and that the reader may see, in the order of `ids`."""
        ...

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
        """The entries that the reader may see, newest first: at most `limit`, and only those after `before`."""
        ...

    async def add(self, workspace: str, drafts: Sequence[Draft], /) -> Sequence[Entry]:
        """Write entries, all or none. A draft whose `key` was written before gives the entry that it made."""
        ...

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
        """Change an entry; its version grows by one."""
        ...

    async def forget(self, workspace: str, ids: Sequence[str], reader: Reader | None = None, /) -> int:
        """Delete entries, all or none. If one does not exist for the reader, raise `UnknownEntry`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Recalls entries for turns.

    Attributes:
        source: Where the entries are.
        limit: The most entries for one turn.
        characters: The most characters of them.
        readers: Gives the reader for the account of a member, with what it may know; None is without members.
    """

    source: MemorySource
    limit: int
    characters: int
    readers: Callable[[str], Awaitable[Reader | None]] | None = None

    async def reader(self, scope: Scope, member: str = ROOT) -> Reader:
        """Who reads in a turn, or in a call of it: its account, or the member whose account it is.

        A member that speaks in the conversation of a person sees the person's entries within its clearance, and none of
        its own, which it could tell the person (A21).

        Args:
            scope: The ids that it runs under.
            member: The member that it runs for.
        """
        found, own = await self.member(scope), Reader(workspace=scope.workspace, account=scope.account)
        if found is not None or member == ROOT or self.readers is None:
            return found or own
        bounds = await self.readers(account_of(scope.workspace, member))
        if bounds is None:
            return replace(own, clearance="public", bounded=True)
        return replace(own, clearance=bounds.clearance, domains=bounds.domains, bounded=True)

    async def member(self, scope: Scope) -> Reader | None:
        """The member that reads, if the account is one's.

        Args:
            scope: The ids that it runs under.
        """
        if self.readers is None or scope.account is None:
            return None
        return await self.readers(scope.account)

    async def find(self, reader: Reader, text: str) -> list[dict[str, Any]]:
        """The ids, versions and marks of the entries that fit a text best, as JSON. One that is too long ends the list.

        The marks are part of it, so that a resumed turn has them, also of entries that were forgotten meanwhile (M5).
        """
        found: list[dict[str, Any]] = []
        left = self.characters
        for entry, _ in await self.source.search(reader, text, limit=self.limit):
            left -= len(entry.text)
            if left < 0:
                break
            found.append({"id": entry.id, "version": entry.version, "untrusted": [*entry.marks]})
        return found

    async def read(self, reader: Reader, found: Sequence[Mapping[str, Any]]) -> tuple[Entry, ...]:
        """The entries that `find` found, without those that were forgotten or edited meanwhile.

        A turn that is resumed is shown what it was shown, or less: its marks and ids are those of these versions.
        """
        versions = {each["id"]: each["version"] for each in found}
        there = await self.source.get(reader, list(versions)) if versions else ()
        return tuple(entry for entry in there if entry.version == versions[entry.id])


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that the host passes with a message, such as a result of its own search. It is not stored.

    Attributes:
        text: The text, up to 4,000 characters.
        source: Where it comes from, for the model.
        trusted: Whether it was checked. Otherwise the turn counts as one that has read untrusted content.
    """

    text: str = field(repr=False)
    source: str = "the host"
    trusted: bool = False


MAX_PASSAGES: Final = 50


def context_json(given: object) -> str:
    """The passages of a message as JSON, from texts and `Passage`s.

    Raises:
        InvalidArgument: They are too many, or one is invalid.
    """
    listed: list[object] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [None]
    made = [Passage(each) if isinstance(each, str) else each for each in listed]
    items = [each for each in made if isinstance(each, Passage)]
    if len(items) < len(made) or len(items) > MAX_PASSAGES:
        raise InvalidArgument(
            f"`context` must be a list of up to {MAX_PASSAGES} texts and Passages",
            remedy='pass for example context=["The harbour opens at six."]',
        )
    for each in items:
        check_entry_text(each.text, "a passage of `context`")
        check_line("source", each.source, 200, remedy="say in a few words where the passage comes from")
    return canonical_json([[each.text, each.source, bool(each.trusted)] for each in items])


def read_context(text: str) -> tuple[Passage, ...]:
    """The passages of such JSON."""
    return tuple(Passage(*each) for each in json.loads(text))


def recalled_marks(result: str) -> set[str]:
    """The marks of recalled entries, from the recorded result of the step `RECALL` or of the function of this name."""
    found = json.loads(result)
    return {mark for each in (found if isinstance(found, list) else [found]) for mark in each.get("untrusted", ())}


def as_passages(entries: Sequence[Entry]) -> list[dict[str, str]]:
    """Entries as a model reads them: each with its id, where it comes from, and its text."""
    return [{"id": entry.id, "from": _origin(entry), "text": entry.text} for entry in entries]


def _origin(entry: Entry) -> str:
    whose = "the workspace" if entry.account is None else f"the account {entry.account}"
    sources = sources_in(entry.untrusted)
    marks = f", made of untrusted results of {', '.join(sources)}" if sources else ""
    return f"{entry.kind} of {whose}, {entry.changed.date().isoformat()}{marks}"
