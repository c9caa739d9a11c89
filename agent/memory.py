"""Memory across threads: what an embedder chooses, `agent.memory`, and the functions that models call (M1 to M4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, Field

from ..core import Embedder, Scope, check_id
from ..core.capability import Capability, Runtime
from ..core.errors import CallRefused, InvalidArgument, UnknownEntry
from ..core.validation import check_integer, is_text, read_model
from ..harness import CallContext, Function, flow
from ..memory.entries import (
    Classification,
    Draft,
    Entries,
    Entry,
    EntryFilter,
    EntryKind,
    MemorySource,
    Reader,
    Recall,
    Source,
    as_passages,
)
from ..memory.entries.entry import CLASSIFICATIONS, MAX_ENTRY_CHARACTERS, check_tags, class_of
from ..memory.entries.files import follow_files
from ..memory.entries.host_source import HostSource
from ..memory.entries.recall import RECALL
from ..memory.entries.store import Change
from ..signatures.embedders import checked_embedder, name_of, open_embedder
from .runtime.inside import AgentRuntime, inside

if TYPE_CHECKING:
    from .settings import Settings

MAX_RECALLED: Final = 100
_MAX_QUIET: Final = 366 * 86_400


@dataclass(frozen=True, kw_only=True)
class Memory(Capability["WorkspaceMemory"]):
    """What an agent remembers across threads, and where.

    Attributes:
        source: Where the entries are: a store of the host's, or None for the agent's database.
        limit: The most entries that a turn recalls, 1 to 100.
        characters: The most characters of them, 1 to 100,000.
        files: Text files and folders with Markdown or text files, whose paragraphs are entries of the workspace. They
            are read when the agent opens: changed texts take the place of old ones, and those of removed files go.
        distil_after: After how many quiet seconds a model notes what later conversations should know of a thread; None
            never does. It runs while the agent is open, and costs a model call for each account of the thread.
        workspace_writes: Whether a model can write entries of the workspace, which all accounts see, and not only
            those of the turn's account.
        embedder: Makes vectors of entries, so that other words with the same meaning find them: a model string such
            as `openai/text-embedding-3-small`, an `Embedder`, or a `dspy.Embedder` over a function. None searches by
            words alone.

    Raises:
        InvalidArgument: A value is invalid; the text names it.
    """

    name: ClassVar[str] = "memory"
    after: ClassVar[tuple[str, ...]] = ("society",)

    source: MemorySource | None = field(default=None, repr=False)
    limit: int = 8
    characters: int = 4000
    workspace_writes: bool = False
    distil_after: float | None = None
    files: tuple[str | PathLike[str], ...] = ()
    embedder: str | Embedder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_integer("limit", self.limit, MAX_RECALLED, remedy="a few entries that fit are better than many")
        check_integer("characters", self.characters, 100_000, remedy="choose a smaller number")
        quiet = self.distil_after
        if quiet is not None and (
            isinstance(quiet, bool) or not isinstance(quiet, int | float) or not 0 < quiet <= _MAX_QUIET
        ):
            raise InvalidArgument(
                f"`distil_after` must be seconds above 0, at most a year, got {str(quiet)[:40]!r}",
                remedy="pass 3600 for an hour, or None to distil nothing",
            )
        if (quiet is not None or self.files or self.embedder is not None) and self.source is not None:
            raise InvalidArgument(
                "`distil_after`, `files` and `embedder` are for the agent's database, and `source` names another store",
                remedy="omit `source`, or the others",
            )
        if not isinstance(self.files, tuple) or not all(isinstance(each, str | PathLike) for each in self.files):
            raise InvalidArgument("`files` must be a tuple of paths", remedy='pass for example files=("notes",)')
        if self.source is not None and not isinstance(self.source, MemorySource):
            raise InvalidArgument(
                f"the memory source {type(self.source).__name__!r} has not the methods of a MemorySource",
                remedy="give it search, get, list, add, edit and forget, or omit it for the agent's database",
            )
        if self.embedder is not None:
            object.__setattr__(self, "embedder", checked_embedder(self.embedder))

    @classmethod
    def of(cls, given: object) -> Self:
        if not isinstance(given, cls):
            raise InvalidArgument(
                f"`memory` must be a Memory, got {type(given).__name__!r}", remedy="pass Memory(...) or omit it"
            )
        return given

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        return _Functions(self, inside(runtime)).functions

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[WorkspaceMemory]:
        agent = inside(runtime)
        entries, readers = agent.stores.entries, _reader_of(agent) if runtime.hooks.readers else None
        async with AsyncExitStack() as opened:
            if self.embedder is not None:
                entries = await _with_vectors(self.embedder, entries, runtime.workspace, agent.spec.settings, opened)
            if self.files:
                await follow_files(entries, runtime.workspace, list(map(Path, self.files)))
            source = entries if self.source is None else HostSource(self.source)
            agent.recall = Recall(source=source, limit=self.limit, characters=self.characters, readers=readers)

            async def start() -> None:
                from .distilling import MemoryUpkeep

                opened.push_async_callback(MemoryUpkeep(agent.parts, runtime.workspace, self.distil_after).aclose)

            if self.source is None:
                runtime.hooks.started.append(start)
            yield WorkspaceMemory(source, runtime.workspace, agent)


def _reader_of(agent: AgentRuntime) -> Callable[[str], Awaitable[Reader | None]]:
    async def reader(account: str) -> Reader | None:
        for each in agent.hooks.readers:
            if (found := await each(account)) is not None:
                return found
        return None

    return reader


async def _with_vectors(
    embedder: str | Embedder, entries: Entries, workspace: str, settings: Settings, opened: AsyncExitStack
) -> Entries:
    name, made = name_of(embedder), embedder
    if isinstance(made, str):
        from .choices import model_options  # it loads the engine

        options = model_options(settings, workspace)
        made = await open_embedder(made, api_base=settings.api_base, options=options)
        opened.push_async_callback(made.aclose)
    entries, vectors = await entries.with_vectors(made, name)
    if vectors is not None:
        vectors.start(workspace)
        opened.push_async_callback(vectors.aclose)
    return entries


class WorkspaceMemory:
    """The memory entries of a workspace: `agent.memory`.

    Each call can name an account: then it is about the entries of this account and of the workspace. Without one it is
    about those of the workspace alone.

    Args:
        source: Where the entries are.
        workspace: The workspace.
        agent: The agent, for distilling; None is without one.
    """

    def __init__(self, source: MemorySource, workspace: str, agent: AgentRuntime | None = None) -> None:
        self._source = source
        self._workspace = workspace
        self._agent = agent

    async def add(
        self,
        text: str,
        *,
        account: str | None = None,
        kind: EntryKind = "entry",
        tags: Iterable[str] = (),
        classification: Classification = "internal",
        domain: str = "",
        confidence: float = 1.0,
        expires: datetime | None = None,
        untrusted: bool = False,
        key: str | None = None,
    ) -> Entry:
        """Remember a text.

        Args:
            text: What to remember, 1 to 4,000 characters. One entry says one thing best.
            account: Whose it is; None is everybody's in the workspace.
            kind: Its kind.
            tags: Words to filter by.
            classification: How widely it may be known.
            domain: The area that the classification is of; empty is any.
            confidence: How certain it is, 0 to 1.
            expires: When it is deleted; None is never.
            untrusted: Whether it is from an unchecked source. A turn that recalls it is marked (M5).
            key: Makes a second call with the same key and account harmless: it returns the entry as it is.

        Raises:
            InvalidArgument: An argument is invalid; nothing is written.
            LimitReached: The account, or the workspace, has too many entries or stores too much today.
        """
        draft = Draft(
            text=text,
            account=account,
            kind=kind,
            tags=check_tags(tags),
            classification=classification,
            domain=domain,
            confidence=confidence,
            expires=expires,
            untrusted=("host",) if untrusted else (),
            key=key,
        )
        await self._count([draft])
        [entry] = await self._source.add(self._workspace, [draft])
        return entry

    async def _count(self, drafts: Sequence[Draft]) -> None:
        """Count what an account adds for its limit of bytes a day."""
        if self._agent is None:
            return
        for account in {draft.account for draft in drafts}:
            size = sum(len(draft.text.encode()) for draft in drafts if draft.account == account)
            await self._agent.parts.usage.store(Scope(workspace=self._workspace, account=account), size=size)

    async def get(self, entry_id: str, *, account: str | None = None) -> Entry | None:
        """Return one entry, or None if there is none that this account sees."""
        found = await self._source.get(self._reader(account), [entry_id])
        return found[0] if found else None

    async def search(
        self, text: str, *, account: str | None = None, limit: int = 10
    ) -> tuple[tuple[Entry, float], ...]:
        """Return the entries that fit a text best and their scores, the best first.

        Args:
            text: The question.
            account: Whose entries, besides those of the workspace.
            limit: The most to return, 1 to 100.

        Raises:
            InvalidArgument: `limit` is out of bounds, or `text` is not a text, or blank.
            EmbedderFailed: The embedder failed. A turn's recall then uses words alone.
        """
        check_integer("limit", limit, MAX_RECALLED, remedy="ask for fewer")
        if not (isinstance(text, str) and text.strip() and is_text(text)):
            raise InvalidArgument(
                "the text to search for must be a text that UTF-8 can encode and not blank", remedy="pass a question"
            )
        reader, source = self._reader(account), self._source
        if isinstance(source, Entries):
            return await source.search(reader, text, limit=limit, strict=True)
        return tuple(await source.search(reader, text, limit=limit))

    async def list(
        self,
        *,
        account: str | None = None,
        kind: EntryKind | None = None,
        tags: Iterable[str] = (),
        limit: int = 100,
        before: Entry | None = None,
        replaced: bool = False,
    ) -> tuple[Entry, ...]:
        """Return entries, newest first.

        Args:
            account: Whose entries, besides those of the workspace.
            kind: Only entries of this kind.
            tags: Only entries with all of these tags.
            limit: The most to return, 1 to 1000.
            before: The last entry of the page before.
            replaced: Whether entries that newer ones replaced are included.

        Raises:
            InvalidArgument: `limit` is out of bounds, or `before`, `kind` or `tags` is invalid.
        """
        check_integer("limit", limit, 1000, remedy="ask for 1 to 1000, and page on with before=")
        if before is not None and not isinstance(before, Entry):
            raise InvalidArgument("`before` must be an Entry", remedy="pass the last entry of the page before")
        wanted = EntryFilter(kind=kind, tags=check_tags(tags))
        found = await self._source.list(self._reader(account), wanted, limit=limit, before=before, replaced=replaced)
        return tuple(found)

    async def edit(
        self,
        entry_id: str,
        text: str | None = None,
        *,
        tags: Iterable[str] | None = None,
        expires: datetime | Literal["never"] | None = None,
        version: int | None = None,
        account: str | None = None,
    ) -> Entry:
        """Change an entry. What is None stays as it is.

        Args:
            entry_id: Its id.
            text: The new text.
            tags: The new tags.
            expires: When it is deleted; "never" clears it.
            version: The version that it must still have, so that two edits do not overwrite one another.
            account: Whose entry it is; None is one of the workspace.

        Raises:
            UnknownEntry: There is no such entry.
            EntryChanged: It has another version by now.
            InvalidArgument: A value is invalid; nothing is written.
        """
        change = Change(text=text, tags=None if tags is None else check_tags(tags), expires=expires)
        return await self._source.edit(self._workspace, entry_id, change, version=version, reader=self._reader(account))

    async def forget(self, *ids: str, account: str | None = None) -> int:
        """Delete entries, all or none; returns how many.

        Args:
            ids: Their ids.
            account: Whose entries they are, besides those of the workspace.

        Raises:
            UnknownEntry: One does not exist; nothing is deleted.
            InvalidArgument: No id is given, or one is not a text.
        """
        if not ids:
            raise InvalidArgument("no entry is named", remedy="pass the ids of the entries to forget")
        if not all(isinstance(each, str) for each in ids):
            raise InvalidArgument("each id must be a text", remedy="pass a list of ids as forget(*ids)")
        return await self._source.forget(self._workspace, ids, self._reader(account))

    async def distil(self, thread_id: str) -> tuple[Entry, ...]:
        """Let the model note what later conversations should know of a thread, and return the new entries.

        Only turns that are over and were not distilled yet are read, those of each account alone. An entry that
        contradicts an older one of the account replaces it: the older one stays, and no turn recalls it.

        Args:
            thread_id: The thread.

        Raises:
            InvalidArgument: The entries are in a store of the host's, or the thread has no turn.
            ThreadBusy: A turn of the thread runs.
            HostError: The model failed. Of a thread with very many turns, the notes of earlier ones are kept.
        """
        from .distilling import distil

        assert self._agent is not None, "distilling needs the model of an agent"
        return await distil(self._agent.parts, self._workspace, check_id("thread", thread_id))

    async def undistilled(self, *, quiet: float = 0.0) -> tuple[str, ...]:
        """Return the ids of threads with turns that were not distilled yet, for `distil`; the longest quiet come first.

        Args:
            quiet: How many seconds ago their newest turn must have ended.

        Raises:
            InvalidArgument: The entries are in a store of the host's, or `quiet` is out of bounds.
        """
        from .distilling import undistilled

        if isinstance(quiet, bool) or not isinstance(quiet, int | float) or not 0 <= quiet <= _MAX_QUIET:
            raise InvalidArgument(
                f"`quiet` must be seconds from 0, at most a year, got {str(quiet)[:40]!r}", remedy="pass 0 for all"
            )
        assert self._agent is not None, "distilling needs the model of an agent"
        return await undistilled(self._agent.parts, self._workspace, quiet)

    async def forget_all(self, *, account: str | None = None) -> int:
        """Delete all entries of an account, or all of the workspace that belong to no account; returns how many."""
        ids = [entry.id async for entry in self._own(account)]
        return await self._source.forget(self._workspace, ids, self._reader(account))

    async def export(self, *, account: str | None = None) -> AsyncGenerator[dict[str, Any]]:
        """Yield all entries of an account, or all of the workspace that belong to no account, as JSON, newest first.

        Entries that newer ones replaced are included.
        """
        async for entry in self._own(account):
            yield entry.to_json()

    async def import_lines(self, lines: Iterable[Mapping[str, Any]], *, account: str | None = None) -> int:
        """Write entries as `export` gives them; returns how many entries of the file are there then.

        A second import writes nothing new, and neither does one where the entries still are. Entries that newer ones
        replaced are left out, because they would count again.

        Args:
            lines: The entries as JSON. Only `text` is required.
            account: Whose they become; None keeps that of each entry.

        Raises:
            InvalidArgument: An entry is invalid; the text names its place. Nothing is written.
        """
        if account is not None:
            check_id("account", account)
        read = [_draft(place, line, account) for place, line in enumerate(lines, start=1)]
        drafts = [(entry_id, draft) for entry_id, draft, replaced in read if not replaced]
        for start in range(0, len(drafts), 500):
            some = drafts[start : start + 500]
            here = await self._here(some)
            new = [draft for entry_id, draft in some if (entry_id, draft.account) not in here]
            await self._count(new)
            await self._source.add(self._workspace, new)
        return len(drafts)

    async def _here(self, drafts: Sequence[tuple[str, Draft]]) -> set[tuple[str, str | None]]:
        found = set[tuple[str, str | None]]()
        for account in {draft.account for _, draft in drafts}:
            ids = [entry_id for entry_id, draft in drafts if entry_id and draft.account == account]
            found |= {(entry.id, entry.account) for entry in await self._source.get(self._reader(account), ids)}
        return found

    async def _own(self, account: str | None) -> AsyncGenerator[Entry]:
        last: Entry | None = None
        reader, every = self._reader(account), EntryFilter()
        while page := await self._source.list(reader, every, limit=1000, before=last, replaced=True):
            last = page[-1]
            for entry in page:
                if entry.account == account:
                    yield entry

    def _reader(self, account: str | None) -> Reader:
        return Reader(workspace=self._workspace, account=None if account is None else check_id("account", account))


class _Line(BaseModel):
    """An entry in a file. The last fields are those of the database that it was exported from, and are left out."""

    id: str | None = None
    text: str
    account: str | None = None
    kind: EntryKind = "entry"
    tags: list[str] = []
    untrusted: list[str] = []
    classification: Classification = "internal"
    domain: str = ""
    confidence: float = 1.0
    expires: AwareDatetime | None = None
    data: dict[str, Any] = {}
    source: Any = None
    version: Any = None
    created: Any = None
    changed: Any = None
    replaced_by: Any = None


def _draft(place: int, line: object, account: str | None) -> tuple[str, Draft, bool]:
    """The id of an entry in a file, the entry, and whether a newer one had replaced it."""
    if not isinstance(line, Mapping):
        raise InvalidArgument(f"entry {place} is not a JSON object", remedy="pass entries as `export` gives them")
    given = read_model(_Line, dict(line), what=f"the fields of entry {place}", error=InvalidArgument)
    values = given.model_dump(
        include={"text", "account", "kind", "classification", "domain", "confidence", "expires", "data"}
    )
    if account is not None:
        values["account"] = account
    key = None if given.id is None else f"import/{given.id}/{values['account'] or ''}"
    try:
        draft = Draft(**values, tags=tuple(given.tags), untrusted=tuple(given.untrusted), key=key)
        return given.id or "", draft, given.replaced_by is not None
    except InvalidArgument as error:
        problem, remedy = error.problem, error.remedy
    raise InvalidArgument(f"entry {place}: {problem}", remedy=remedy)


Text = Annotated[
    str, Field(min_length=1, max_length=MAX_ENTRY_CHARACTERS, description="one thing, in a sentence that stands alone")
]


class Recalled(BaseModel):
    """What a search of a model found.

    Attributes:
        entries: The entries as a model reads them, the best first.
        untrusted: The untrusted functions whose results they were made of.
    """

    entries: list[dict[str, str]]
    untrusted: list[str] = []


class _Functions:
    """The functions by which models write, search and forget entries. They pass the gate.

    Each is a flow, because a leaf does not know what its turn has read. A repeated call writes nothing twice: the key
    of an entry is the id of the call.

    Args:
        memory: What the embedder chose.
        agent: The agent.

    Attributes:
        functions: `remember`, `recall` and `forget`.
    """

    def __init__(self, memory: Memory, agent: AgentRuntime) -> None:
        self._memory = memory
        self._agent = agent
        about = "Remember something about the person for later conversations."
        remember = self._remember
        if memory.workspace_writes:
            about = "Remember something for later conversations: for this person, or for everybody."
            remember = self._remember_for
        self.functions: tuple[Function, ...] = (
            flow(name="remember", description=about, risk="write")(remember),
            flow(name=RECALL, description="Search what was remembered.", risk="read_only")(self._recall),
            flow(name="forget", description="Forget something that was remembered.", risk="destructive")(self._forget),
        )

    async def _remember(self, ctx: CallContext, text: Text) -> str:
        return await self._write(ctx, text, everybody=False)

    async def _remember_for(self, ctx: CallContext, text: Text, everybody: bool = False) -> str:
        return await self._write(ctx, text, everybody=everybody)

    async def _write(self, ctx: CallContext, text: str, *, everybody: bool) -> str:
        if ctx.scope.account is None and not everybody:
            raise CallRefused(
                "this conversation has no account whose entry it could be",
                remedy="continue without remembering it",
            )
        turn = ctx.frame.drive.turn
        if self._agent.parts.engine.without_roles(turn, text) != text:
            raise CallRefused(
                "the text repeats the role of this turn, and a role is never remembered (R7)",
                remedy="remember only what was said about the person or the matter",
            )
        member = await self._recalls.member(ctx.scope) if everybody else None
        # What a member tells everybody can hold all that it may know.
        level = CLASSIFICATIONS.index(class_of(ctx.gate.marks))
        level = level if member is None else max(level, member.highest)
        draft = Draft(
            text=text,
            account=None if everybody else ctx.scope.account,
            classification=CLASSIFICATIONS[level],
            source=Source(by="model", thread=ctx.scope.thread, turn=turn),
            untrusted=tuple(sorted(ctx.gate.marks)),
            key=ctx.path,
        )
        [entry] = await self._recalls.source.add(ctx.scope.workspace, [draft])
        return entry.id

    async def _recall(self, ctx: CallContext, text: Text) -> Recalled:
        recall = self._recalls
        reader = await recall.reader(ctx.scope, ctx.on_behalf_of)
        found = [entry for entry, _ in await recall.source.search(reader, text, limit=recall.limit)]
        untrusted = sorted({mark for entry in found for mark in entry.marks})
        ctx.gate.mark(*untrusted)
        return Recalled(entries=as_passages(found), untrusted=untrusted)

    async def _forget(self, ctx: CallContext, entry_id: str) -> str:
        source, reader = self._recalls.source, await self._recalls.reader(ctx.scope, ctx.on_behalf_of)
        found = await source.get(reader, [entry_id])
        if found and found[0].account is None and not self._memory.workspace_writes:
            raise CallRefused(
                f"the entry {entry_id!r} is everybody's in the workspace", remedy="let a person remove it"
            )
        try:  # also if it is not found: an earlier run of this call can have been killed before it was in no file
            await source.forget(ctx.scope.workspace, [entry_id], reader)
        except UnknownEntry:
            return "There is no such entry."
        return "Forgotten."

    @property
    def _recalls(self) -> Recall:
        recall = self._agent.recall
        assert recall is not None, "calls are made inside turns of an open agent"
        return recall
