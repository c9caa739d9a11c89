"""What a member remembers: episodes, the insights that follow from them, and the facts of its workspace (A11).

All of it is memory entries: episodes and insights are those of the member's account, and facts are the workspace's. So
they are recalled, exported and removed as other entries are. What a member reads is decided in one place,
`society.reading`: all of its own, and of the rest what its clearance admits.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...agent.runtime.inside import inside
from ...core import Scope, digest
from ...core.checks import check_text
from ...core.errors import InvalidArgument, UnknownEntry
from ...core.marks import is_class
from ...core.scope import account_of, is_id, member_of
from ...core.validation import check_integer, check_line
from ...memory.entries import Draft, Entry, EntryFilter, EntryKind, Episode, Fact, Insight, MemorySource, Reader, Source
from ...memory.entries.entry import CLASSIFICATIONS, MAX_TAG_CHARACTERS, MAX_TAGS, Classification
from ...memory.entries.recall import RECALL
from ...memory.entries.store import Change
from ..capability import Members
from ..data.roles import ROOT
from .outcomes import Outcome
from .reading import reader_of

if TYPE_CHECKING:
    from ...agent import WorldAgent

MAX_LISTED: Final = 100_000
"""The most that one call returns."""

MIN_EPISODES: Final = 2
"""From how many episodes on something follows."""

PUBLISHED_FROM: Final = 0.8
"""The confidence from which on an insight becomes a fact of the workspace."""

_PAGE: Final = 200
_SHOWN: Final = 1000  # files of a folder, and episodes that a reflection looks at
_READ: Final = 100  # episodes that a model reads at once, and insights that it is shown with them
_CHARACTERS: Final = 40_000
_TEXT: Final = 1000  # characters of one episode
_MESSAGES: Final = 200
_INTERNAL: Final = CLASSIFICATIONS.index("internal")
_VALUE: Final = "value"
"""The tag of the entries of `Values`."""

DIRECTORY: Final = ".directory"
_FOLDERS: Final[Mapping[str, EntryKind]] = {"facts": "fact", "insights": "insight", "episodes": "episode"}


class AgentMemory:
    """What one member remembers. Only its own entries are ever written here, but for `publish_to_workspace`.

    Args:
        agent: An open agent with a society.
        role_id: The member.
        llm: The model that reflects, by name or as a model string; None is the agent's.

    Raises:
        InvalidArgument: The agent has no society.
        AgentClosed: The agent is not open.
    """

    def __init__(self, agent: WorldAgent, role_id: str, *, llm: str | None = None) -> None:
        self._agent = agent
        self._society = agent.get(Members)
        self._llm = llm
        self.role_id = role_id

    # --- episodes -----------------------------------------------------------------------------------------------------

    async def record_episode(self, episode: Episode, *, turn: str | None = None) -> Episode:
        """Keep what the member did. A second call with the same id changes nothing and returns the first.

        `respond()` calls it, and the gateway after each run of an operator. They make the id of that of the turn or the
        event, so that a repeat after a kill records it once. Its text must hold nothing of a role: of an answer, use
        `Turn.roleless`.

        Args:
            episode: What it did.
            turn: The id of the turn in which it did it. The episode gets the marks of what was read there, is
                classified at least as high, and is removed with the turn's thread.

        Raises:
            InvalidArgument: It is of another member.
        """
        if episode.role_id != self.role_id:
            raise InvalidArgument(
                f"the episode {episode.id[:60]!r} is of {episode.role_id!r}, not of {self.role_id!r}",
                remedy="record it in the memory of its member",
            )
        source = Source()
        if turn is not None:
            episode, source = await self._read_in(turn, episode)
        [entry] = await self._source.add(self._workspace, [episode.draft(self._account, source)])
        return Episode.of(entry, self.role_id)

    async def remember(self, episode: Episode, turn: str = "") -> Outcome:
        """Keep what the member did, and return its outcome, from which its trust follows (A8).

        Args:
            episode: What it did.
            turn: The turn in which it did it; empty for none.
        """
        await self.record_episode(episode, turn=turn or None)
        return Outcome(
            episode_id=episode.id,
            role_id=self.role_id,
            capability=episode.action,
            succeeded=episode.succeeded,
            at=episode.at,
            turn_id=turn,
        )

    async def episodes(
        self, *, action: str | None = None, domain: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> tuple[Episode, ...]:
        """Return what the member did, newest first.

        Args:
            action: Only with this capability.
            domain: Only of this domain.
            since: Only what ended at this time or later.
            limit: The most to return.

        Raises:
            InvalidArgument: `limit` is not a positive integer.
        """

        def fits(entry: Entry) -> bool:
            wanted = action in (None, entry.data["action"]) and domain in (None, entry.domain)
            return wanted and (since is None or datetime.fromisoformat(entry.data["at"]) >= since)

        found = await self._own("episode", fits, limit, since=since)
        return tuple(Episode.of(entry, self.role_id) for entry in found)

    async def _read_in(self, turn: str, episode: Episode) -> tuple[Episode, Source]:
        """The episode with the marks and the classification of what its turn has read, and where it comes from."""
        parts = inside(self._agent).parts
        record = await parts.stores.turns.get(turn)
        if record is None:
            return episode, Source()
        calls = (await parts.stores.journal.load(turn)).values()
        messages = await parts.stores.log.of_turn(record.thread, turn, limit=_MESSAGES)
        marks = {mark for each in messages if each.turn_id == turn for mark in each.body.get("untrusted", ())}
        marks |= {each.name for each in calls if each.over} & {*parts.engine.services.registry.untrusted}
        results = [json.loads(each.result) for each in calls if each.name == RECALL and each.over and each.result]
        recalled = [each for result in results for each in _recalled(result)]
        marks |= {mark for result in results for mark in _marks(result)}
        read = await self._source.get(await self._reader(), [each["id"] for each in recalled])
        level = max([CLASSIFICATIONS.index(episode.classification), *(_level(each, episode) for each in read)])
        marked = replace(
            episode,
            classification=CLASSIFICATIONS[level],
            untrusted=tuple(sorted(mark for mark in {*episode.untrusted, *marks} if not is_class(mark))),
        )
        return marked, Source(thread=record.scope.thread, turn=turn)

    # --- insights and facts -------------------------------------------------------------------------------------------

    async def recall_insights(
        self, query: str = "", *, domain: str = "", tags: Iterable[str] = (), limit: int = 10
    ) -> tuple[Insight, ...]:
        """Return insights: those that fit a query best, or the newest.

        They are the member's own. Under `memory_isolation: shared_read` they are also those of others, within its
        clearance.

        Args:
            query: What they are to be about.
            domain: Only of this domain.
            tags: Only with one of these tags.
            limit: The most to return.

        Raises:
            InvalidArgument: `limit` is not a positive integer.
        """
        wanted = {*tags}

        def fits(entry: Entry) -> bool:
            has = {*entry.data.get("tags", entry.tags)}
            return (not domain or entry.domain == domain) and (not wanted or bool(wanted & has))

        found = await self._some("insight", query, fits, limit)
        return tuple(Insight.of(entry, member_of(self._workspace, entry.account) or ROOT) for entry in found)

    async def store_insights(self, insights: Sequence[Insight]) -> tuple[Insight, ...]:
        """Keep insights of the member, each once by its id. Those that its clearance does not admit are left out.

        Args:
            insights: The insights, such as those that it inherits.

        Raises:
            InvalidArgument: One is of another member.
        """
        strange = [each for each in insights if each.role_id != self.role_id]
        if strange:
            raise InvalidArgument(
                f"the insight {strange[0].id[:60]!r} is of {strange[0].role_id!r}",
                remedy=f"give it the role_id {self.role_id!r} and an id of its own",
            )
        reader = replace(await self._reader(), account=None)
        fits = [each for each in insights if reader.sees(None, "insight", _index(each), each.domain)]
        return await self._stored(fits)

    async def facts(self, query: str = "", *, domain: str = "", limit: int = 10) -> tuple[Fact, ...]:
        """Return facts of the workspace that the member's clearance admits: those that fit a query best, or the newest.

        Args:
            query: What they are to be about.
            domain: Only of this domain.
            limit: The most to return.

        Raises:
            InvalidArgument: `limit` is not a positive integer.
        """
        found = await self._some("fact", query, lambda entry: not domain or entry.domain == domain, limit)
        return tuple(map(Fact.of, found))

    async def publish_to_workspace(self) -> tuple[Fact, ...]:
        """Make facts of the workspace of the member's own insights with a confidence from 0.8 on, and return these.

        A fact is classified as its insight is, and keeps its marks of untrusted content. Each is written once.
        """
        found = await self._own("insight", lambda entry: entry.confidence >= PUBLISHED_FROM, MAX_LISTED)
        facts = [_fact_of(Insight.of(entry, self.role_id)) for entry in found]
        made = await self._source.add(self._workspace, [each.draft() for each in facts]) if facts else ()
        return tuple(map(Fact.of, made))

    # --- reflecting ---------------------------------------------------------------------------------------------------

    async def reflect(self) -> tuple[Insight, ...]:
        """Let a model say what follows from episodes that no insight is made of yet; returns the new insights.

        Only episodes of one domain, one classification and the same marks are read together, from two on. So an
        insight is classified and marked as its episodes are. Each names at least two of them.

        Raises:
            HostError, OutputInvalid: The model failed. Insights of other episodes are kept.
        """
        known = [Insight.of(each, self.role_id) for each in await self._own("insight", lambda _: True, MAX_LISTED)]
        used = {episode for each in known for episode in each.episodes}
        new = [each for each in await self.episodes(limit=_SHOWN) if each.id not in used]
        groups: dict[tuple[Any, ...], list[Episode]] = defaultdict(list)
        for each in new:
            groups[_kind_of(each)].append(each)
        made: list[Insight] = []
        for kind, episodes in groups.items():
            if len(episodes) >= MIN_EPISODES:
                texts = [each.text for each in known if _kind_of(each) == kind]
                made += await self._stored(await self._lessons(episodes[:_READ], texts[:_READ]))
        return tuple(made)

    async def _lessons(self, episodes: Sequence[Episode], known: Sequence[str]) -> list[Insight]:
        """What a model says that follows from some episodes, the newest first."""
        from ...agent.distilling import ask_model  # these load dspy
        from ...signatures.summaries import REFLECT

        shown, left = list[tuple[Episode, str]](), _CHARACTERS
        for each in episodes:
            text = _shown(each)
            left -= len(text)
            if left < 0:
                break
            shown.append((each, text))
        numbered = [{"number": str(place), "text": text} for place, (_, text) in enumerate(shown, start=1)]
        scope = Scope(workspace=self._workspace, account=self._account)
        fields = await ask_model(
            inside(self._agent).parts, scope, REFLECT, {"known": [*known], "episodes": numbered}, model=self._llm
        )
        found = list[Insight]()
        for place, lesson in enumerate(fields["insights"][:_READ]):
            numbers = sorted({each for each in lesson.episodes if 1 <= each <= len(shown)})
            text = lesson.text.strip()
            if len(numbers) < MIN_EPISODES or not text or len(text) > 4000 or "\0" in text:
                continue
            first, ids = shown[0][0], [shown[each - 1][0].id for each in numbers]
            found.append(
                Insight(
                    # A second process that reflects on the same episodes makes the same ids, and so writes nothing.
                    id=f"ins_{digest([self.role_id, [each.id for each, _ in shown], place])}",
                    role_id=self.role_id,
                    text=text,
                    confidence=min(1.0, max(0.0, lesson.confidence)) if math.isfinite(lesson.confidence) else 0.0,
                    domain=first.domain,
                    tags=_tags(lesson.tags),
                    episodes=tuple(ids),
                    classification=first.classification,
                    untrusted=first.untrusted,
                )
            )
        return found

    async def _stored(self, insights: Sequence[Insight]) -> tuple[Insight, ...]:
        drafts = [each.draft(self._account) for each in insights]
        made = await self._source.add(self._workspace, drafts) if drafts else ()
        return tuple(Insight.of(entry, self.role_id) for entry in made)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def recall(self, query: str, *, limit: int = 10) -> tuple[Entry, ...]:
        """Return the entries of any kind that fit a query best, of all that the member may read.

        Args:
            query: What they are to be about.
            limit: The most to return.

        Raises:
            InvalidArgument: `query` is blank, or `limit` is not a positive integer.
        """
        check_text("query", query)
        check_integer("limit", limit, MAX_LISTED, remedy="ask for fewer")
        found = await self._source.search(await self._reader(), query, limit=limit)
        return tuple(entry for entry, _ in found)

    async def _some(self, kind: EntryKind, query: str, fits: Callable[[Entry], bool], limit: int) -> Sequence[Entry]:
        """Entries of a kind that the member may read."""
        check_integer("limit", limit, MAX_LISTED, remedy="ask for fewer")
        reader = await self._reader()
        if not query:
            return await self._listed(reader, EntryFilter(kind=kind), fits, limit)
        found, asked = list[Entry](), _PAGE
        while True:
            hits = await self._source.search(reader, query, limit=asked)
            found = [entry for entry, _ in hits if entry.kind == kind and fits(entry)]
            if len(found) >= limit or len(hits) < asked:
                return found[:limit]
            asked *= 10

    async def _own(
        self, kind: EntryKind, fits: Callable[[Entry], bool], limit: int, *, since: datetime | None = None
    ) -> Sequence[Entry]:
        """The member's own entries of a kind, newest first."""
        check_integer("limit", limit, MAX_LISTED, remedy="ask for fewer")
        reader = Reader(workspace=self._workspace, account=self._account)
        wanted = EntryFilter(kind=kind)
        return await self._listed(
            reader, wanted, lambda each: each.account == self._account and fits(each), limit, since
        )

    async def _listed(
        self,
        reader: Reader,
        wanted: EntryFilter,
        fits: Callable[[Entry], bool],
        limit: int,
        since: datetime | None = None,
    ) -> Sequence[Entry]:
        found, last = list[Entry](), None
        while len(found) < limit:
            page = await self._source.list(reader, wanted, limit=_PAGE, before=last)
            found += filter(fits, page)
            # An episode is written after its end, so no earlier one ended later.
            if len(page) < _PAGE or (since is not None and page[-1].created < since):
                break
            last = page[-1]
        return found[:limit]

    async def _reader(self) -> Reader:
        found = await reader_of(self._society, self._account)
        assert found is not None, "it is the account of a member"
        return found

    @property
    def _source(self) -> MemorySource:
        parts = inside(self._agent).parts
        recall = parts.engine.services.recall
        return parts.stores.entries if recall is None else recall.source

    @property
    def _workspace(self) -> str:
        return self._agent.workspace

    @property
    def _account(self) -> str:
        return account_of(self._workspace, self.role_id)


class Values:
    """Texts by names, which a member's host code keeps: a small view of the entries of the member's account.

    Args:
        memory: The memory of the member.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    async def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of a name, or the default."""
        found = await self._entries()
        return found[name].text if name in found else default

    async def set(self, name: str, value: str) -> None:
        """Set the value of a name.

        Args:
            name: The name.
            value: The value, 1 to 4,000 characters.

        Raises:
            InvalidArgument: The value is not such a text, or the name is not a short line.
        """
        memory = self._memory
        draft = Draft(
            text=value,
            account=memory._account,
            tags=(_VALUE,),
            key=f"{_VALUE}/{check_line('name', name, 200, remedy='use a short name')}",
            data={_VALUE: name},
        )
        [entry] = await memory._source.add(memory._workspace, [draft])
        if entry.text != value:
            reader = Reader(workspace=memory._workspace, account=memory._account)
            await memory._source.edit(memory._workspace, entry.id, Change(text=value), reader=reader)

    async def delete(self, name: str) -> None:
        """Delete a name; one that is not there has no effect."""
        found = await self._entries()
        if name in found:
            memory = self._memory
            reader = Reader(workspace=memory._workspace, account=memory._account)
            with suppress(UnknownEntry):  # another process was faster
                await memory._source.forget(memory._workspace, [found[name].id], reader)

    async def names(self) -> tuple[str, ...]:
        """Return the names that have a value, sorted."""
        return tuple(sorted(await self._entries()))

    async def _entries(self) -> Mapping[str, Entry]:
        found = await self._memory._own("entry", lambda each: _VALUE in each.data, MAX_LISTED)
        return {each.data[_VALUE]: each for each in found}


class MemoryFiles:
    """What a member may read, as folders and files: a view that cannot be written to (A14).

    Each folder has a file `.directory`, which says what is in it. The folders are `facts`, `insights` and `episodes`,
    and each entry is a file there. The newest 1,000 of each kind are shown.

    Args:
        memory: The memory of the member.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    async def list(self, folder: str = "") -> tuple[str, ...]:
        """Return the names in a folder.

        Args:
            folder: The folder; empty is the top.

        Raises:
            InvalidArgument: There is no such folder.
        """
        if folder.strip("/") == "":
            return (DIRECTORY, *(f"{each}/" for each in _FOLDERS))
        return (DIRECTORY, *await self._files(folder))

    async def read(self, path: str) -> str:
        """Return the text of a file.

        Args:
            path: The file, such as `insights/.directory`.

        Raises:
            InvalidArgument: There is no such file.
        """
        folder, _, name = path.strip("/").rpartition("/")
        if folder == "" and name == DIRECTORY:
            counts = {each: len(await self._files(each)) for each in _FOLDERS}
            return "\n".join(f"{each}/: {count} {each}" for each, count in counts.items())
        files = await self._files(folder)
        if name == DIRECTORY:
            return "\n".join(f"{file}: {_line(entry.text)}" for file, entry in files.items())
        if name not in files:
            raise InvalidArgument(f"there is no file {path[:200]!r}", remedy=f"look into {folder}/{DIRECTORY}")
        return files[name].text

    async def _files(self, folder: str) -> Mapping[str, Entry]:
        kind = _FOLDERS.get(folder.strip("/"))
        if kind is None:
            raise InvalidArgument(
                f"there is no folder {folder[:200]!r}", remedy=f"the folders are: {', '.join(_FOLDERS)}"
            )
        found = await self._memory._some(kind, "", lambda _: True, _SHOWN)
        return {f"{each.id}.md": each for each in found}


# --- entries ----------------------------------------------------------------------------------------------------------


def _recalled(result: Any) -> list[Mapping[str, Any]]:
    """The entries in the result of the step `recall`, or of the function of this name."""
    return result if isinstance(result, list) else result.get("entries", [])


def _marks(result: Any) -> set[str]:
    given = result if isinstance(result, list) else [result]
    return {mark for each in given for mark in each.get("untrusted", ())}


def _level(entry: Entry, episode: Episode) -> int:
    """How high an episode is at least that has read an entry. Another domain's classification holds in no other."""
    level = CLASSIFICATIONS.index(entry.classification)
    elsewhere = entry.domain not in ("", episode.domain) and level > _INTERNAL
    return len(CLASSIFICATIONS) - 1 if elsewhere else level


def _index(insight: Insight) -> int:
    return CLASSIFICATIONS.index(insight.classification)


def _kind_of(one: Episode | Insight) -> tuple[str, Classification, tuple[str, ...]]:
    return one.domain, one.classification, one.untrusted


def _fact_of(insight: Insight) -> Fact:
    return Fact(
        id=f"{insight.role_id}.{digest(insight.id)}",
        text=insight.text,
        domain=insight.domain,
        classification=insight.classification,
        confidence=insight.confidence,
        source=insight.role_id,
        untrusted=insight.untrusted,
    )


def _shown(episode: Episode) -> str:
    """An episode as a model reads it."""
    came = "succeeded" if episode.succeeded else "failed"
    tags = "".join(f", {name} {value}" for name, value in episode.tags.items())
    return f"{episode.at.date().isoformat()}, {episode.action} {came}{tags}. {episode.text}"[:_TEXT]


def _tags(given: Sequence[str]) -> tuple[str, ...]:
    """Those words of a model that can be tags."""
    found = [each.strip() for each in given]
    return tuple(dict.fromkeys(each for each in found if is_id(each) and len(each) <= MAX_TAG_CHARACTERS))[:MAX_TAGS]


def _line(text: str) -> str:
    return " ".join(text.split())[:80]
