"""The entries in the agent's database: written, read and searched (M1, M3)."""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import Json

from ...core import Clock, Embedder, Scope, SystemClock, canonical_json
from ...core.checks import check_choice, json_object, thawed
from ...core.errors import EntryChanged, UnknownEntry
from ...storage import Database, Row, Schema, Time, Transaction, checked_row, portions
from ..turns import keys_of, thread_key
from .entry import (
    CLASSIFICATIONS,
    Draft,
    Entry,
    EntryKind,
    Reader,
    check_entry_text,
    check_expires,
    check_tags,
    source_of,
)
from .index import MASK, MAX_POSTINGS, MAX_QUERY_WORDS, WORD_TABLES, Place, hash_of, post, rank, unpost
from .vectors import VECTOR_TABLES, Vectors, drop_vector, fused
from .words import question_words, words_of

_COLUMNS: Final = (
    "key, workspace, owner, kind, text, tags, source, thread, untrusted, level, domain, confidence, version, "
    "created, changed, expires, replaced, data"
)

ENTRIES: Final = Schema(
    "entries",
    (
        (
            """CREATE TABLE wa_entry(
                 key BIGINT PRIMARY KEY,
                 workspace TEXT NOT NULL,
                 owner TEXT NOT NULL,
                 kind TEXT NOT NULL,
                 text TEXT NOT NULL,
                 tags TEXT NOT NULL,
                 source TEXT NOT NULL,
                 thread TEXT,
                 untrusted TEXT NOT NULL,
                 level BIGINT NOT NULL,
                 domain TEXT NOT NULL,
                 confidence DOUBLE PRECISION NOT NULL,
                 version BIGINT NOT NULL,
                 created DOUBLE PRECISION NOT NULL,
                 changed DOUBLE PRECISION NOT NULL,
                 expires DOUBLE PRECISION,
                 replaced BIGINT)""",
            "CREATE INDEX wa_entry_created ON wa_entry(workspace, owner, created, key)",
            "CREATE INDEX wa_entry_thread ON wa_entry(thread) WHERE thread IS NOT NULL",
            "CREATE INDEX wa_entry_expires ON wa_entry(expires) WHERE expires IS NOT NULL",
            "CREATE INDEX wa_entry_replaced ON wa_entry(replaced) WHERE replaced IS NOT NULL",
            *WORD_TABLES,
        ),
        ("CREATE TABLE wa_distilled(thread TEXT PRIMARY KEY, turn TEXT NOT NULL)",),
        VECTOR_TABLES,
        ("CREATE TABLE wa_rewrite(id BIGINT PRIMARY KEY)",),
        ("ALTER TABLE wa_entry ADD COLUMN data TEXT NOT NULL DEFAULT '{}'",),
    ),
)

_LONGEST_QUESTION: Final = 20_000  # characters of a question that are cut into words
_PAGE: Final = 200

_INSERT: Final = f"INSERT INTO wa_entry({_COLUMNS}) VALUES {{}} ON CONFLICT(key) DO NOTHING RETURNING {_COLUMNS}"
_VALUES: Final = f"({', '.join('?' * 18)})"
_INSERTED_AT_ONCE: Final = 50
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_entry WHERE key=? AND workspace=?"
_SOME: Final = f"SELECT {_COLUMNS} FROM wa_entry WHERE key IN ({{}})"
_UPDATE: Final = "UPDATE wa_entry SET text=?, tags=?, expires=?, version=?, changed=? WHERE key=?"
_DELETE: Final = "DELETE FROM wa_entry WHERE key=?"
_ANY_REPLACED_BY: Final = "SELECT 1 FROM wa_entry WHERE replaced=? LIMIT 1"
_REPLACED_BY: Final = f"SELECT {_COLUMNS} FROM wa_entry WHERE replaced=?"
_LIST: Final = f"""SELECT {_COLUMNS} FROM wa_entry WHERE workspace=? AND owner IN ({{}}) AND (owner=? OR level <= ?)
                     AND (CAST(? AS BIGINT)=1 OR replaced IS NULL)
                     AND (expires IS NULL OR expires > ?)
                     AND (CAST(? AS TEXT) IS NULL OR kind=?)
                     AND (created < ? OR (created=? AND key < ?))
                   ORDER BY created DESC, key DESC LIMIT ?"""
# Deletions go by places, as `post` does, so that two writers do not wait for each other.
_OF_THREAD: Final = "SELECT key, source FROM wa_entry WHERE thread=? ORDER BY workspace, owner, level, key"
_EXPIRED: Final = "SELECT workspace, owner, level, key FROM wa_entry WHERE expires <= ? ORDER BY expires LIMIT ?"
_COUNT: Final = "SELECT COUNT(*) FROM wa_entry WHERE workspace=?"
_OF_ACCOUNT: Final = "SELECT key FROM wa_entry WHERE workspace=? AND owner=? ORDER BY level, key LIMIT ?"
_OVER: Final = "status NOT IN ('running', 'paused', 'stopped')"
_MARK: Final = "SELECT turn FROM wa_distilled WHERE thread=?"
_UNREAD: Final = f"SELECT id, account FROM wa_turn WHERE thread=? AND id > ? AND {_OVER} ORDER BY id LIMIT ?"
_TURN: Final = "SELECT id FROM wa_turn WHERE id=?"
_FIRST_MARK: Final = "INSERT INTO wa_distilled(thread, turn) VALUES(?, '') ON CONFLICT DO NOTHING"
_SET_MARK: Final = """INSERT INTO wa_distilled(thread, turn) VALUES(?, ?)
                      ON CONFLICT(thread) DO UPDATE SET turn=excluded.turn"""
_QUIET: Final = f"""SELECT t.name, t.id FROM wa_turn t LEFT JOIN wa_distilled d ON d.thread=t.thread
                    WHERE t.id IN (SELECT MAX(id) FROM wa_turn WHERE thread >= ? AND thread < ? GROUP BY thread)
                      AND t.id > ? AND t.{_OVER} AND (t.archived=1 OR t.changed <= ?)
                      AND (d.turn IS NULL OR d.turn < t.id)
                    ORDER BY t.id LIMIT ?"""


class _Stored(Row):
    key: int
    workspace: str
    owner: str
    kind: EntryKind
    text: str
    tags: Json[list[str]]
    source: Json[dict[str, str]]
    thread: str | None
    untrusted: Json[list[str]]
    level: int
    domain: str
    confidence: float
    version: int
    created: Time
    changed: Time
    expires: Time | None
    replaced: int | None
    data: Json[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an edit changes; None leaves a field as it is.

    Attributes:
        text: The new text.
        tags: The new tags.
        expires: When it is deleted; "never" clears it.

    Raises:
        InvalidArgument: A field is invalid. The text names it.
    """

    text: str | None = None
    tags: tuple[str, ...] | None = None
    expires: datetime | Literal["never"] | None = None

    def __post_init__(self) -> None:
        if self.text is not None:
            check_entry_text(self.text)
        if self.tags is not None:
            object.__setattr__(self, "tags", check_tags(self.tags))
        if self.expires != "never":
            check_expires(self.expires)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries a list has.

    Attributes:
        kind: Only entries of this kind; None is all kinds.
        tags: Only entries with all of these tags.

    Raises:
        InvalidArgument: `kind` or `tags` is invalid.
    """

    kind: EntryKind | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is not None:
            check_choice("kind", self.kind, get_args(EntryKind))
        object.__setattr__(self, "tags", check_tags(self.tags))

    def matches(self, entry: Entry) -> bool:
        """Whether an entry passes."""
        return self.kind in (None, entry.kind) and set(self.tags) <= {*entry.tags}


Ranked = Sequence[tuple[Entry, float]]
"""Entries with their scores, the best first."""


class _Question(NamedTuple):
    """A search: who reads, what is looked for, and how much is wanted."""

    reader: Reader
    words: Sequence[str]
    vector: Sequence[float] | None
    now: datetime
    limit: int
    strict: bool


class Entries:
    """The entries in a database that was opened with the schema `ENTRIES`.

    Args:
        database: The database.
        clock: Source of time.
        vectors: Makes and searches the vectors of entries; without it they are searched by words alone.

    Attributes:
        check: Refuses new entries of an account that has too many; it counts those of an account, or of the workspace.
    """

    def __init__(self, database: Database, clock: Clock | None = None, vectors: Vectors | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._vectors = vectors
        self.check: Callable[[Scope, Callable[[str | None], int]], None] | None = None

    async def with_vectors(self, embedder: Embedder, name: str) -> tuple[Entries, Vectors | None]:
        """The same entries, searched by vectors too, and what makes these; None on a server without pgvector.

        Raises:
            MissingExtra: The database is a file, and numpy is not installed.
        """
        vectors = await Vectors.open(self._database, embedder, name)
        found = Entries(self._database, self._clock, vectors)
        found.check = self.check
        return found, vectors

    # --- writing ----------------------------------------------------------------------------------------------------

    async def add(self, workspace: str, drafts: Sequence[Draft]) -> tuple[Entry, ...]:
        """Write entries, all or none, and return them. A draft whose `key` was written before gives that entry.

        Args:
            workspace: Their workspace.
            drafts: The entries.

        Raises:
            LimitReached: An account, or the workspace, has too many.
            StorageUnavailable: The database cannot be written.
        """
        keys = [_key_of(workspace, draft.account, draft.key) for draft in drafts]
        now = self._clock.now()

        def work(transaction: Transaction) -> list[tuple[Any, ...]]:
            made = write(transaction, workspace, list(zip(keys, drafts, strict=True)), now)
            if self.check is not None:
                for account in {draft.account for draft in drafts}:
                    self.check(Scope(workspace=workspace, account=account), partial(_count, transaction, workspace))
            return made

        made = tuple(map(self._entry, await self._database.transact(work)))
        await self._embed(workspace, keys)
        return made

    async def edit(
        self, workspace: str, entry_id: str, change: Change, *, version: int | None = None, reader: Reader | None = None
    ) -> Entry:
        """Change an entry. Its id stays, and its version grows by one.

        Args:
            workspace: Its workspace.
            entry_id: Its id.
            change: What changes.
            version: The version that it must still have; None changes any.
            reader: Who changes it; None may change all of the workspace.

        Raises:
            UnknownEntry: There is no such entry for this reader.
            EntryChanged: It has another version by now.
            InvalidArgument: A value is invalid; nothing is written.
        """
        key, now = key_of_id(entry_id), self._clock.now()

        def work(transaction: Transaction) -> Entry | int | None:
            rows = transaction.hold(_ONE, (key, workspace), alone=True)
            if not rows or not _changeable(rows[0], reader):
                return None
            before = self._entry(rows[0])
            if version not in (None, before.version):
                return before.version
            rewrite(transaction, rows[0], change, now)
            return self._entry(transaction.execute(_ONE, (key, workspace))[0])

        done = await self._database.transact(work)
        if isinstance(done, Entry):
            await self._embed(workspace, [key])
            return done
        if done is None:
            raise unknown_entry(entry_id)
        raise EntryChanged(
            f"the entry {entry_id!r} has version {done}, and the edit is of version {version}",
            remedy="read it again, and repeat the edit with its version",
        )

    async def forget(self, workspace: str, ids: Sequence[str], reader: Reader | None = None) -> int:
        """Delete entries, all or none, so that no file holds them; returns how many.

        An entry that one of them had replaced counts again. SQLite's file is rewritten, also if an entry does not
        exist: the process that deleted it can have been killed before that. Until then a row says that it is due.

        Args:
            workspace: Their workspace.
            ids: Their ids.
            reader: Who forgets them; None may forget all of the workspace.

        Raises:
            UnknownEntry: One does not exist for this reader; nothing is deleted.
        """
        keys = {entry_id: key_of_id(entry_id) for entry_id in ids}

        def work(transaction: Transaction) -> str:
            held: list[tuple[Place, int]] = []
            for entry_id, key in keys.items():
                rows = transaction.hold(_ONE, (key, workspace), alone=True)
                if not rows or not _changeable(rows[0], reader):
                    return entry_id
                held.append((_place(rows[0]), key))
            for _, key in sorted(held):
                delete(transaction, key)
            _rewrite_is_due(transaction)
            return ""

        missing = await self._database.transact(work)
        await self.scrub()
        if missing:
            raise unknown_entry(missing)
        await self._embed(workspace, [])  # what they had replaced counts again
        return len(keys)

    async def forget_account(self, workspace: str, account: str) -> int:
        """Delete all entries of an account, so that no file holds them; returns how many."""
        count = 0

        def work(transaction: Transaction) -> int:
            keys = [key for (key,) in transaction.execute(_OF_ACCOUNT, (workspace, account, _PAGE))]
            for key in keys:
                delete(transaction, key)
            if keys:
                _rewrite_is_due(transaction)
            return len(keys)

        while deleted := await self._database.transact(work):
            count += deleted
        await self.scrub()
        return count

    async def forget_expired(self) -> int:
        """Delete the expired entries, in all workspaces, so that no file holds them; returns how many.

        What a process was forgetting when it was killed is removed from the files, too.
        """
        count = await self.delete_expired()
        if await self._due():
            await self.scrub()
        return count

    async def delete_expired(self) -> int:
        """As `forget_expired`, but leave it to the caller to call `scrub`."""
        given, count = (self._clock.now().timestamp(), _PAGE), 0

        def work(transaction: Transaction) -> int:
            rows = sorted(transaction.execute(_EXPIRED, given))
            for *_, key in rows:
                delete(transaction, key)
            _rewrite_is_due(transaction)
            return len(rows)

        # Mostly there are none, and a read does not wait for writers.
        while await self._database.read(lambda tx: tx.execute(_EXPIRED, given)):
            count += await self._database.transact(work)
        return count

    async def scrub(self) -> None:
        """Rewrite SQLite's file, so that no deleted entry is in it, as `Database.scrub` does.

        Raises:
            StorageUnavailable: Another process blocked the file for 30 s, or the disk fails. It is still due.
        """
        due = await self._due()  # first: the file of an entry that is deleted meanwhile is rewritten again
        await self._database.scrub()

        def work(transaction: Transaction) -> None:
            for marks, some in portions(due):
                transaction.execute(f"DELETE FROM wa_rewrite WHERE id IN ({marks})", some)

        if due:
            await self._database.transact(work)

    async def _due(self) -> list[int]:
        rows = await self._database.read(lambda tx: tx.execute("SELECT id FROM wa_rewrite"))
        return [mark for (mark,) in rows]

    # --- distilling -------------------------------------------------------------------------------------------------

    async def quiet(self, workspace: str, before: float, *, after: str = "", limit: int) -> list[tuple[str, str]]:
        """The ids of threads and of their newest turns, which ended before a time and were not distilled yet.

        An archived thread is quiet whenever its newest turn ended.

        Args:
            workspace: The workspace.
            before: The time, in seconds since 1970.
            after: The newest turn of the last thread of the page before; empty is the first page.
            limit: The most threads, those with the oldest turns first.
        """
        given = (*keys_of(workspace), after, before, limit)
        return [(thread, turn) for thread, turn in await self._database.read(lambda tx: tx.execute(_QUIET, given))]

    async def undistilled(self, thread: str, *, limit: int) -> tuple[str, list[tuple[str, str | None]]]:
        """Up to which turn a thread is distilled, empty if it never was, and the turns after it that are over.

        Each turn is its id and its account.

        Args:
            thread: The key of the thread.
            limit: The most turns, the oldest first.
        """

        def work(transaction: Transaction) -> tuple[str, list[tuple[str, str | None]]]:
            mark = next((str(mark) for (mark,) in transaction.execute(_MARK, (thread,))), "")
            return mark, [*transaction.execute(_UNREAD, (thread, mark, limit))]

        return await self._database.read(work)

    async def distilled(
        self, workspace: str, thread: str, made: Sequence[tuple[Draft, str | None]], *, before: str, after: str
    ) -> tuple[Entry, ...]:
        """Write what was made of a thread, each with the id of the entry that it replaces, and how far it is read.

        Args:
            workspace: The workspace.
            thread: The key of the thread.
            made: The entries.
            before: The turn up to which it was read when they were made.
            after: The turn up to which it is read now.

        Returns:
            The new entries; none if another process has read the thread meanwhile, or it was removed.
        """
        keys, now = [_key_of(workspace, None, None) for _ in made], self._clock.now()

        def work(transaction: Transaction) -> list[tuple[Any, ...]]:
            if not transaction.hold(_TURN, (after,)):
                return []
            transaction.execute(_FIRST_MARK, (thread,))
            [(mark,)] = transaction.hold(_MARK, (thread,), alone=True)
            if mark != before:
                return []
            rows = write(
                transaction, workspace, [(key, draft) for key, (draft, _) in zip(keys, made, strict=True)], now
            )
            for key, (draft, replaced) in zip(keys, made, strict=True):
                for row in transaction.hold(_ONE, (key_of_id(replaced or ""), workspace), alone=True):
                    if _changeable(row, Reader(workspace=workspace, account=draft.account)) and row[_REPLACED] is None:
                        mark_replaced(transaction, row, key)
            transaction.execute(_SET_MARK, (thread, after))
            return rows

        notes = tuple(map(self._entry, await self._database.transact(work)))
        await self._embed(workspace, keys)
        return notes

    async def _embed(self, workspace: str, keys: Sequence[int]) -> None:
        if self._vectors is not None:
            await self._vectors.fill(workspace, keys)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def get(self, reader: Reader, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Those of some entries that exist and that the reader may see, in the order of `ids`.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        keys = [key_of_id(entry_id) for entry_id in ids]
        rows, now = await self._database.read(lambda tx: _some(tx, keys)), self._clock.now()
        visible = {row[0]: self._entry(row) for row in rows if _visible(row, reader)}
        found = [visible[key] for key in keys if key in visible]
        return tuple(entry for entry in found if entry.expires is None or entry.expires > now)

    async def list(
        self,
        reader: Reader,
        wanted: EntryFilter = EntryFilter(),
        *,
        limit: int = 100,
        before: Entry | None = None,
        replaced: bool = False,
    ) -> tuple[Entry, ...]:
        """The entries that a reader sees, newest first.

        Args:
            reader: Who reads.
            wanted: Which of them.
            limit: The most to return.
            before: Only those that were written before this one.
            replaced: Whether entries that newer ones replaced are included.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        now, found = self._clock.now().timestamp(), list[Entry]()
        at, key = (math.inf, 0) if before is None else (before.created.timestamp(), key_of_id(before.id))
        owners, kind = (*reader.owners, *reader.others), wanted.kind
        marks = ", ".join("?" * len(owners))
        while True:
            given = (
                *(reader.workspace, *owners, reader.account or "", reader.highest, int(replaced), now, kind, kind),
                *(min(at, 1e12), at if at < math.inf else 1e12, key, _PAGE),
            )
            rows = await self._database.read(lambda tx, given=given: tx.execute(_LIST.format(marks), given))  # type: ignore[misc]
            page = [self._entry(row) for row in rows]
            found += [
                entry for row, entry in zip(rows, page, strict=True) if _visible(row, reader) and wanted.matches(entry)
            ]
            if len(found) >= limit or len(page) < _PAGE:
                return tuple(found[:limit])
            at, key = page[-1].created.timestamp(), key_of_id(page[-1].id)

    async def search(
        self, reader: Reader, text: str, *, limit: int = 10, strict: bool = False
    ) -> tuple[tuple[Entry, float], ...]:
        """The entries that fit a text best, each with its score, the best first; equal scores by id.

        The score is BM25. With an embedder it is that of the ranks by words and by vectors, joined.

        Args:
            reader: Who reads. Only what it may see is found, and counts in the scores.
            text: The question.
            limit: The most to return.
            strict: Whether a failing embedder is an error. Otherwise it is logged, and words alone are searched.

        Raises:
            StorageInvalid: A row was changed by another program.
            EmbedderFailed: The search is strict, and the embedder failed.
        """
        words, vector = question_words(text[:_LONGEST_QUESTION])[:MAX_QUERY_WORDS], None
        if self._vectors is not None:
            vector = await self._vectors.question(text, strict=strict)
        asked = _Question(reader, words, vector, self._clock.now(), limit, strict)

        def work(transaction: Transaction) -> Ranked:
            found = self._found(transaction, asked, reader.owners)
            if reader.others:  # apart, so that what others have takes no place of its own entries
                others = self._found(transaction, asked, reader.others)
                found = sorted((*found, *others), key=lambda each: (-each[1], each[0].id))[:limit]
            return found

        return tuple(await self._database.read(work)) if words or vector is not None else ()

    def _found(self, transaction: Transaction, asked: _Question, owners: Sequence[str]) -> Ranked:
        """The entries of some owners that fit a question best."""
        nearest: Sequence[tuple[int, float]] | None = None
        if self._vectors is not None and asked.vector is not None:
            nearest = self._vectors.rank(
                transaction, asked.reader, owners, asked.vector, asked.now, strict=asked.strict
            )
        found: Ranked = ()
        # All are ranked only if many are left out, or to join them with the others.
        for most in (asked.limit + _PAGE, MAX_POSTINGS) if nearest is None else (MAX_POSTINGS,):
            by_words = rank(transaction, asked.reader, owners, asked.words, most)
            ranked = by_words if nearest is None else fused(by_words, nearest)
            found = self._current(transaction, asked, ranked)
            if len(found) == asked.limit or len(by_words) < most:
                break
        return found

    def _current(self, transaction: Transaction, asked: _Question, ranked: Sequence[tuple[int, float]]) -> Ranked:
        """The first entries of a ranked list that the reader sees and that have not expired."""
        found: list[tuple[Entry, float]] = []
        start, size = 0, max(1, min(asked.limit, _PAGE))
        while start < len(ranked) and len(found) < asked.limit:
            page = ranked[start : start + size]
            rows = {row[0]: row for row in _some(transaction, [key for key, _ in page])}
            entries = [(self._entry(rows[key]), score) for key, score in page if _visible(rows[key], asked.reader)]
            found += [each for each in entries if each[0].expires is None or each[0].expires > asked.now]
            start, size = start + size, _PAGE
        return found[: asked.limit]

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        name = id_of_key(row[0]) if isinstance(row[0], int) else str(row[0])
        kept = checked_row(_Stored, row, what=f"the memory entry {name!r}", database=self._database.name)
        return Entry(
            id=name,
            version=kept.version,
            text=kept.text,
            account=kept.owner or None,
            kind=kept.kind,
            tags=tuple(kept.tags),
            source=source_of(kept.source),
            untrusted=tuple(kept.untrusted),
            classification=CLASSIFICATIONS[kept.level],
            domain=kept.domain,
            confidence=kept.confidence,
            created=kept.created,
            changed=kept.changed,
            expires=kept.expires,
            replaced_by=None if kept.replaced is None else id_of_key(kept.replaced),
            data=json_object("data", kept.data),
        )


# --- ids --------------------------------------------------------------------------------------------------------------


def id_of_key(key: int) -> str:
    """The id of the entry with this key."""
    return f"mem_{key:016x}"


def key_of_id(entry_id: str) -> int:
    """The key of the entry with this id; one that no entry has, if the id is malformed."""
    head, _, digits = entry_id.partition("_") if isinstance(entry_id, str) else ("", "", "")
    plain = head == "mem" and len(digits) == 16 and all(digit in "0123456789abcdef" for digit in digits)
    return int(digits, 16) & MASK if plain else -1


def _key_of(workspace: str, account: str | None, key: str | None) -> int:
    # The account is part of it: otherwise the same key would give one account the entry of another.
    return secrets.randbits(63) if key is None else hash_of("key", workspace, account or "", key)


def unknown_entry(entry_id: object) -> UnknownEntry:
    """The error that there is no such entry."""
    return UnknownEntry(
        f"there is no memory entry {str(entry_id)[:60]!r} here", remedy="list the entries of this account for their ids"
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def _count(transaction: Transaction, workspace: str, account: str | None) -> int:
    """How many entries an account has, or with None the workspace and all its accounts."""
    statement, given = (_COUNT, (workspace,)) if account is None else (f"{_COUNT} AND owner=?", (workspace, account))
    return int(transaction.execute(statement, given)[0][0])


def write(
    transaction: Transaction, workspace: str, drafts: Sequence[tuple[int, Draft]], now: datetime
) -> list[tuple[Any, ...]]:
    """Write entries, each with its key, and return their rows. An entry whose key was written before stays as it is."""
    new = dict(reversed(drafts))  # of two with the same key the first counts
    counts = {key: Counter(words_of(draft.text)) for key, draft in new.items()}
    given = [_values(workspace, key, draft, now) for key, draft in new.items()]
    written: dict[int, tuple[Any, ...]] = {}
    for start in range(0, len(given), _INSERTED_AT_ONCE):
        some = given[start : start + _INSERTED_AT_ONCE]
        values = [value for row in some for value in row]
        statement = _INSERT.format(", ".join([_VALUES] * len(some)))
        written |= {row[0]: row for row in transaction.execute(statement, values)}
    post(transaction, ((_place(row), key, counts[key]) for key, row in written.items()))
    there = _some(transaction, [key for key in new if key not in written])
    rows = written | {row[0]: row for row in there if row[1] == workspace}
    return [rows[key] for key, _ in drafts if key in rows]


def _values(workspace: str, key: int, draft: Draft, now: datetime) -> tuple[object, ...]:
    level, source = CLASSIFICATIONS.index(draft.classification), draft.source.thread
    thread = None if source is None else thread_key(Scope(workspace=workspace, thread=source))
    return (
        *(key, workspace, draft.account or "", draft.kind, draft.text, json.dumps(draft.tags, ensure_ascii=False)),
        *(canonical_json(draft.source.to_json()), thread, json.dumps([*draft.untrusted]), level),
        *(draft.domain, float(draft.confidence), 1, now.timestamp(), now.timestamp()),
        *(_seconds(draft.expires or "never"), None, canonical_json(thawed(draft.data))),
    )


def rewrite(transaction: Transaction, row: Sequence[Any], change: Change, now: datetime) -> None:
    """Change a row that is held."""
    stored = dict(zip(_COLUMNS.split(", "), row, strict=True))
    text = stored["text"] if change.text is None else change.text
    tags = stored["tags"] if change.tags is None else json.dumps(change.tags, ensure_ascii=False)
    expires = stored["expires"] if change.expires is None else _seconds(change.expires)
    if text != stored["text"]:
        drop_vector(transaction, stored["key"])
    if text != stored["text"] and stored["replaced"] is None:
        unpost(transaction, _place(row), stored["key"], words_of(stored["text"]))
        post(transaction, [(_place(row), stored["key"], Counter(words_of(text)))])
    given = (text, tags, expires, stored["version"] + 1, now.timestamp(), stored["key"])
    transaction.execute(_UPDATE, given)


def mark_replaced(transaction: Transaction, row: Sequence[Any], by: int | None) -> None:
    """Take a row that is held out of searches, because of a newer entry; None puts it back."""
    stored = dict(zip(_COLUMNS.split(", "), row, strict=True))
    words = words_of(stored["text"])
    unpost(transaction, _place(row), stored["key"], words)
    drop_vector(transaction, stored["key"])
    if by is None:
        post(transaction, [(_place(row), stored["key"], Counter(words))])
    transaction.execute("UPDATE wa_entry SET replaced=? WHERE key=?", (by, stored["key"]))


def delete(transaction: Transaction, key: int) -> None:
    """Delete an entry in a transaction. What it had replaced counts again, unless a still newer one had replaced it."""
    newer = None
    for row in transaction.hold(_SOME.format("?"), (key,), alone=True):
        stored = dict(zip(_COLUMNS.split(", "), row, strict=True))
        newer = stored["replaced"]
        unpost(transaction, _place(row), key, words_of(stored["text"]))
        drop_vector(transaction, key)
        transaction.execute(_DELETE, (key,))
    # Again while there are some: another transaction that deletes one of them gives this entry what that had replaced.
    while transaction.execute(_ANY_REPLACED_BY, (key,)):
        for row in transaction.hold(_REPLACED_BY, (key,), alone=True):
            mark_replaced(transaction, row, newer)


def remove_of_thread(transaction: Transaction, thread: str, turns: Collection[str] | None = None) -> None:
    """Delete the entries that come from a thread, by its key, or from some of its turns."""
    if turns is None:
        transaction.execute("DELETE FROM wa_distilled WHERE thread=?", (thread,))
    rows = transaction.execute(_OF_THREAD, (thread,))
    keys = [key for key, source in rows if turns is None or json.loads(source).get("turn") in turns]
    for key in keys:
        delete(transaction, key)
    if keys:
        _rewrite_is_due(transaction)


def _rewrite_is_due(transaction: Transaction) -> None:
    # A row of its own for each deletion, so that no rewrite that began before it counts for it.
    transaction.execute("INSERT INTO wa_rewrite(id) VALUES(?)", (secrets.randbits(63),))


def _some(transaction: Transaction, keys: Sequence[int]) -> list[tuple[Any, ...]]:
    found = [transaction.execute(_SOME.format(marks), some) for marks, some in portions(keys, _PAGE)]
    return [row for rows in found for row in rows]


def _place(row: Sequence[Any]) -> Place:
    return row[1], row[2], row[9]


_KIND, _DOMAIN, _REPLACED = (_COLUMNS.split(", ").index(name) for name in ("kind", "domain", "replaced"))


def _visible(row: Sequence[Any], reader: Reader) -> bool:
    workspace, owner, level = _place(row)
    return workspace == reader.workspace and reader.sees(owner, row[_KIND], level, row[_DOMAIN])


def _changeable(row: Sequence[Any], reader: Reader | None) -> bool:
    """Whether a reader, or the workspace's host, can change an entry: what it sees of others it only reads."""
    return reader is None or (_visible(row, reader) and row[2] in reader.owners)


def _seconds(expires: datetime | Literal["never"]) -> float | None:
    return expires.timestamp() if isinstance(expires, datetime) else None
