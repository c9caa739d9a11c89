"""The conversation log in the agent's database (D7).

Bytes per message stay constant, because nothing is ever rewritten, and a fork shares the messages before it. A message
that no head reaches any more, such as after a crash, is harmless.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_args

from ..core import Clock, SystemClock, canonical_json, check_id, digest
from ..core.errors import InvalidArgument, StorageInvalid, UnknownMessage
from ..core.validation import check_integer
from ..storage import Database, Lease, Schema, Transaction, checked_row
from .attachments import ATTACHMENT_TABLES, READER_TABLES, REFERENCES, note_references
from .branches import BRANCH_TABLES, HANDED_BRANCHES
from .conversation import KEPT_TABLES, Draft, Message, MessageKind, StoredMessage, Tail, moment_of, stored_moment
from .titles import TITLE_TABLES

_KINDS = get_args(MessageKind)
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def encode(draft: Draft, where: str) -> tuple[str, str, str]:
    """Return author, kind and body as texts that encode as UTF-8.

    Raises:
        InvalidArgument: A field does not match `Draft`. The text names the field under `where`, never its content.
    """
    author = check_id(f"{where}.author", draft.author)
    if draft.kind not in _KINDS:
        raise InvalidArgument(f"`{where}.kind` must be a kind of message", remedy=f"use one of {', '.join(_KINDS)}")
    return author, draft.kind, _json(draft.body, f"{where}.body")


def named(what: str, value: object) -> str:
    """Return `value` if it can be a key: a non-empty string that encodes as UTF-8.

    Raises:
        InvalidArgument: It cannot; the text names `what`.
    """
    if isinstance(value, str) and value and not _HALF_PAIR.search(value):
        return value
    raise InvalidArgument(f"`{what}` must be a non-empty string of valid Unicode", remedy=f"pass another `{what}`")


def _json(body: object, where: str) -> str:
    text = None
    if isinstance(body, Mapping):
        # Suppressed, and a new error is raised below, because the texts of these can repeat the content.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = canonical_json(dict(body))
    if text is None:
        raise InvalidArgument(
            f"`{where}` must be a JSON object", remedy="use only strings, finite numbers, lists and objects in it"
        )
    if _HALF_PAIR.search(text):
        # Models emit halves of surrogate pairs. UTF-8 cannot encode them, but JSON can escape them.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        text = _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", joined)
    return text


CONVERSATION = Schema(
    "conversation",
    (
        (
            """CREATE TABLE wa_message(
                 id TEXT PRIMARY KEY,
                 thread TEXT NOT NULL,
                 parent TEXT REFERENCES wa_message(id),
                 depth BIGINT NOT NULL,
                 turn TEXT NOT NULL,
                 author TEXT NOT NULL,
                 kind TEXT NOT NULL,
                 body TEXT NOT NULL,
                 at BIGINT NOT NULL)""",
        ),
        ("CREATE INDEX wa_message_turn ON wa_message(turn)",),
        BRANCH_TABLES,
        (
            # Without it the deletion of a message would search the parents of all messages.
            "CREATE INDEX wa_message_parent ON wa_message(parent)",
            "CREATE INDEX wa_message_thread ON wa_message(thread, turn)",
            "DROP INDEX wa_message_turn",  # the index above also finds the messages of a turn
        ),
        KEPT_TABLES,
        ATTACHMENT_TABLES,
        TITLE_TABLES,
        ("DROP INDEX wa_message_said",),  # the first message of a thread is in its first turn
        READER_TABLES,
        HANDED_BRANCHES,
    ),
)
_INSERT = """INSERT INTO wa_message(id, thread, parent, depth, turn, author, kind, body, at, summary)
             VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING"""
_PARENT = "SELECT depth, CASE WHEN kind='summary' THEN id ELSE summary END FROM wa_message WHERE id=?"
_DEPTH = "SELECT depth FROM wa_message WHERE id=?"
_PAGE = """WITH RECURSIVE page(id, parent, depth, turn, author, kind, body, at, thread, place) AS (
             SELECT id, parent, depth, turn, author, kind, body, at, thread, 1 FROM wa_message WHERE id=?
             UNION ALL
             SELECT m.id, m.parent, m.depth, m.turn, m.author, m.kind, m.body, m.at, m.thread, page.place + 1
             FROM page JOIN wa_message m ON m.id=page.parent AND m.depth=page.depth - 1 WHERE page.place < ?)
           SELECT id, parent, depth, turn, author, kind, body, at, thread FROM page ORDER BY depth"""
# Walks from summary to summary, each of which names the one before it, and after the last one from parent to parent.
_ANCESTOR = """WITH RECURSIVE chain(id, parent, depth, summary) AS (
                 SELECT id, parent, depth, summary FROM wa_message WHERE id=?
                 UNION ALL
                 SELECT m.id, m.parent, m.depth, m.summary FROM chain
                 LEFT JOIN wa_message s ON s.id=chain.summary AND s.depth >= ? AND s.depth < chain.depth
                 JOIN wa_message m ON m.id=COALESCE(s.id, chain.parent) AND m.depth < chain.depth WHERE chain.depth > ?)
               SELECT id, parent FROM chain WHERE depth=?"""
_SOME = f"SELECT {', '.join(StoredMessage.model_fields)} FROM wa_message WHERE id IN ({{}}) ORDER BY depth DESC"
_LAST = "SELECT id FROM wa_message WHERE thread=? AND turn=? ORDER BY depth DESC, at DESC LIMIT 1"
# What a turn read while it ran and no checkpoint has in its conversation; see `words_after`.
_WORDS = """WITH RECURSIVE words(id, depth) AS (
              SELECT id, depth FROM wa_message WHERE parent=? AND turn=? AND kind='word'
              UNION ALL
              SELECT m.id, m.depth FROM words JOIN wa_message m ON m.parent=words.id WHERE m.turn=? AND m.kind='word')
            SELECT id FROM words ORDER BY depth DESC LIMIT 1"""
_NAMED = ("id", "parent", "depth", "turn_id", "author", "kind")  # fields of a message that are stored as they are
MAX_PAGE = 1000
MAX_KNOWN_MESSAGES, MAX_KNOWN_CHARACTERS = 500, 400_000  # of a thread that are kept in memory


class _Row(NamedTuple):
    id: str
    thread: str
    parent: str | None
    turn: str
    author: str
    kind: str
    body: str


class _Known(NamedTuple):
    """The end of a conversation as its lease keeps it in memory, and how many characters its bodies have."""

    tail: Tail
    characters: int

    def ends_with(self, head: str | None) -> bool:
        return (self.tail.messages[-1].id if self.tail.messages else None) == head

    def reaches(self, limit: int) -> bool:
        messages = self.tail.messages
        return len(messages) >= limit or messages[0].parent is None


class ConversationLog:
    """The conversations in a database that was opened with the schema `CONVERSATION`. It has no heads of threads."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def append(
        self,
        parent: str | None,
        messages: Sequence[Draft],
        *,
        thread: str,
        turn_id: str,
        lease: Lease | None = None,
    ) -> str:
        """Append `messages` after `parent` and return the new head, the id of the last one.

        All of them are stored when it returns, or none. A repeated append stores nothing and returns the same head, so
        a turn can repeat it after a crash.

        Args:
            parent: The head so far; None begins a conversation. A message of another thread makes a fork.
            messages: One or more, oldest first.
            thread: An opaque key, which makes the first messages of two threads different.
            turn_id: The turn that appends.
            lease: The lease of the thread, verified with the write; None writes without one (T4).

        Raises:
            UnknownMessage: The message `parent` does not exist.
            LeaseLost: Another owner took over the thread; nothing is stored.
            InvalidArgument: `messages` is empty, or one does not match `Draft`; the text names the field. Half a
                surrogate pair, which a model can emit, is stored unchanged.
        """
        rows = rows_of(parent, messages, thread=thread, turn_id=turn_id)
        at = stored_moment(self._clock.now())

        def work(transaction: Transaction) -> None:
            insert_rows(transaction, rows, at)

        if lease is None:
            await self._database.transact(work)
        else:
            lease.enqueue(work)
            _extend_known(lease, rows, at)
        return rows[-1].id

    async def append_made(
        self,
        parent: str,
        make: Callable[[Transaction], Sequence[Draft]],
        *,
        thread: str,
        turn_id: str,
        lease: Lease,
    ) -> tuple[Message, ...]:
        """Append the messages that `make` returns, in the transaction that it gets, and return them.

        Args:
            parent: The head so far.
            make: Returns them, oldest first; none appends nothing. It can be called again.
            thread: The key of the thread.
            turn_id: The turn that appends.
            lease: The lease of the thread.

        Raises:
            UnknownMessage, LeaseLost, InvalidArgument: As for `append`.
        """
        at = stored_moment(self._clock.now())

        def work(transaction: Transaction) -> list[_Row]:
            drafts = make(transaction)
            rows = rows_of(parent, drafts, thread=thread, turn_id=turn_id) if drafts else []
            if rows:
                insert_rows(transaction, rows, at)
            return rows

        rows = await lease.commit(work)
        if rows:
            _extend_known(lease, rows, at)
        return tuple(_message_of(row, 0, at) for row in rows)

    async def history(self, head: str | None, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """Return up to `limit` messages, oldest first: those that end with `head`, or just before `before`.

        Page back with the first message of a page as the next `before`; an empty page is the end.

        Args:
            head: The last message of the conversation; None is the empty conversation.
            before: A message of the conversation ending with `head`.
            limit: The most messages to return, 1 to 1000.

        Raises:
            UnknownMessage: The message `head` does not exist, or `before` is not in its conversation.
            InvalidArgument: `limit` is out of bounds.
        """
        check_integer("limit", limit, MAX_PAGE, remedy="page with `before` for more")
        if head is None:
            if before is not None:
                raise _unknown(before, "the conversation is empty")
            return ()
        return self._messages(await self._database.read(lambda tx: _page(tx, head, before, limit)), limit)

    def _messages(self, rows: Sequence[tuple[Any, ...]], limit: int) -> tuple[Message, ...]:
        messages = tuple(_message(row, self._database.name) for row in rows)
        if messages and messages[0].parent is not None and len(messages) < limit:
            raise StorageInvalid(
                f"the parent of the message {messages[0].id!r} is missing in {self._database.name!r}",
                remedy="restore the database from a copy, or continue on another thread",
            )
        return messages

    async def tail(self, head: str, *, limit: int, lease: Lease | None = None) -> Tail:
        """Return the end of the conversation ending with `head`.

        Args:
            head: Its last message.
            limit: The least messages to return, 1 to 1000, unless the conversation is shorter.
            lease: The lease of the thread, which may have the messages in memory.

        Raises:
            UnknownMessage, InvalidArgument: As for `history`.
        """
        check_integer("limit", limit, MAX_PAGE, remedy="page with `before` for more")
        known: _Known | None = None if lease is None else lease.known.get(Tail)
        if known is not None and known.ends_with(head) and known.reaches(limit):
            return known.tail
        if lease is not None:
            await lease.flush()
        found = await self._database.read(lambda tx: self.tail_of(tx, head, limit))
        if lease is not None:
            lease.known[Tail] = found
        return found.tail

    def tail_of(self, transaction: Transaction, head: str | None, limit: int) -> _Known:
        """Like `tail`, but in a transaction and for `Lease.known`; a head of None is the empty conversation."""
        if head is None:
            return _Known(Tail((), None), 0)
        rows = _page(transaction, head, None, limit)
        found = _summary(transaction, head)
        summary = _message(found[0], self._database.name) if found else None
        return _Known(Tail(self._messages(rows, limit), summary), sum(len(row[6]) for row in rows))

    async def some(self, head: str, ids: Sequence[str]) -> tuple[Message, ...]:
        """Return those of the messages `ids` that are in the conversation ending with `head`, oldest first."""
        if not ids:
            return ()
        rows = await self._database.read(lambda tx: _some(tx, head, ids))
        return tuple(_message(row, self._database.name) for row in reversed(rows))

    async def of_turn(self, thread: str, turn_id: str, *, limit: int = 50) -> tuple[Message, ...]:
        """A page that ends with the last message of a turn, for a caller that has no checkpoint with the head.

        Args:
            thread: The thread.
            turn_id: The turn.
            limit: How many messages, 1 to 1000.

        Raises:
            InvalidArgument: `limit` is out of bounds.
        """
        check_integer("limit", limit, MAX_PAGE, remedy="page with `before` for more")
        found = await self._database.read(lambda tx: tx.execute(_LAST, (thread, turn_id)))
        return await self.history(found[0][0], limit=limit) if found else ()


def words_after(transaction: Transaction, head: str, turn_id: str) -> str:
    """The last of the messages that a turn read after `head` without a checkpoint; `head` if it read none.

    A turn reads them before it thinks, and its checkpoint comes after that. A turn that ends in between has read them.
    """
    found = transaction.execute(_WORDS, (head, turn_id, turn_id))
    return str(found[0][0]) if found else head


def rows_of(parent: str | None, messages: Sequence[Draft], *, thread: str, turn_id: str) -> list[_Row]:
    """The rows of messages to append, with ids that are digests of their content; see `append`."""
    if not messages:
        raise InvalidArgument("`messages` must not be empty", remedy="pass at least one draft")
    thread, turn_id = named("thread", thread), named("turn_id", turn_id)
    rows: list[_Row] = []
    for place, draft in enumerate(messages):
        author, kind, body = encode(draft, f"messages[{place}]")
        message_id = _id_of(thread, parent, turn_id, author, kind, body)
        rows.append(_Row(message_id, thread, parent, turn_id, author, kind, body))
        parent = message_id
    return rows


def _id_of(thread: str, parent: str | None, turn_id: str, author: str, kind: str, body: str) -> str:
    """The id of a message. `body` is the stored text, so messages with equal texts are the same message."""
    return digest([thread if parent is None else None, parent, turn_id, author, kind, body])


def _extend_known(lease: Lease, rows: Sequence[_Row], at: int) -> None:
    """Add appended `rows` to the lease's data, if it has the messages before them and the result is not too long."""
    known: _Known | None = lease.known.pop(Tail, None)
    if known is None or not known.ends_with(rows[0].parent):
        return
    messages, summary = list(known.tail.messages), known.tail.summary
    depth = messages[-1].depth + 1 if messages else 0
    for place, row in enumerate(rows, start=depth):
        messages.append(_message_of(row, place, at))
        summary = messages[-1] if row.kind == "summary" else summary
    characters = known.characters + sum(len(row.body) for row in rows)
    if len(messages) <= MAX_KNOWN_MESSAGES and characters <= MAX_KNOWN_CHARACTERS:
        lease.known[Tail] = _Known(Tail(tuple(messages), summary), characters)


def _message_of(row: _Row, depth: int, at: int) -> Message:
    columns = (row.id, row.parent, depth, row.turn, row.author, row.kind)
    return _make_message(columns, json.loads(row.body), moment_of(at))


def insert_rows(transaction: Transaction, rows: Sequence[_Row], at: int) -> None:
    """Write rows after the parent of the first one; see `append`."""
    parent, depth = rows[0].parent, 0
    summary: str | None = None
    if parent is not None:
        # Held, so that a removal of messages either waits for this or has finished before.
        found = transaction.hold(_PARENT, (parent,))
        if not found:
            raise _unknown(parent, "nothing can follow it")
        depth, summary = found[0][0] + 1, found[0][1]
    for offset, row in enumerate(rows):
        values = (row.id, row.thread, row.parent, depth + offset, row.turn, row.author, row.kind, row.body, at, summary)
        transaction.execute(_INSERT, values)
        if REFERENCES in row.body:
            note_references(transaction, row.id, row.body)
        summary = row.id if row.kind == "summary" else summary


def _page(transaction: Transaction, head: str, before: str | None, limit: int) -> list[tuple[Any, ...]]:
    last: str | None = head
    if before is not None:
        last = _parent_within(transaction, head, before)
        if last is None:
            return []
    rows = transaction.execute(_PAGE, (last, limit))
    if not rows:
        raise _unknown(head, "no conversation ends with it")
    return rows


def _summary(transaction: Transaction, head: str) -> list[tuple[Any, ...]]:
    found = [summary for _, summary in transaction.execute(_PARENT, (head,)) if summary is not None]
    return transaction.execute(_SOME.format("?"), found) if found else []


def _some(transaction: Transaction, head: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of those `ids` that are in the conversation ending with `head`, newest first."""
    present: list[tuple[Any, ...]] = []
    for row in transaction.execute(_SOME.format(", ".join("?" * len(ids))), tuple(ids)):
        found = transaction.execute(_ANCESTOR, (head, row[2], row[2], row[2]))
        if not found:
            continue  # it is on another branch or after the head
        head = str(found[0][0])  # the next one is before it, so no message is walked twice
        if head == row[0]:
            present.append(row)
    return present


def _parent_within(transaction: Transaction, head: str, before: str) -> str | None:
    """The parent of `before`, which must be in the conversation ending with `head`."""
    depths = transaction.execute(_DEPTH, (before,))
    at_its_depth = transaction.execute(_ANCESTOR, (head, *(depths[0] * 3))) if depths else []
    for message_id, parent in at_its_depth:
        if message_id == before:
            return None if parent is None else str(parent)
    raise _unknown(before, "it is not in this conversation")


def _message(row: tuple[Any, ...], database: str) -> Message:
    found = checked_row(StoredMessage, row, what=f"the message {row[0]!r}", database=database)
    *named, text, _, _ = row
    _check_id(found, text, database)
    return _make_message(named, found.body, found.at)


def _check_id(found: StoredMessage, text: str, database: str) -> None:
    """Refuse a message that was edited in the database: its id does not match its content."""
    if found.id != _id_of(found.thread, found.parent, found.turn, found.author, found.kind, text):
        raise StorageInvalid(
            f"the message {found.id!r} in {database!r} has changed since it was written",
            remedy="restore the database from a copy, or continue on another thread",
        )


def _make_message(columns: Sequence[Any], body: Mapping[str, Any], at: datetime) -> Message:
    return Message(**dict(zip(_NAMED, columns, strict=True)), body=body, at=at)


def _unknown(message_id: object, why: str) -> UnknownMessage:
    # Our ids have 32 characters. A longer value is something else, perhaps text that an error must not repeat.
    shown = repr(message_id) if isinstance(message_id, str) and len(message_id) <= 100 else "of that id"
    return UnknownMessage(f"message {shown} is unknown: {why}", remedy="use an id from this thread's history")
