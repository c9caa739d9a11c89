"""Titles of threads. A title that the host set has a row; other titles are the first words of the first message."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..core.errors import InvalidArgument, StorageInvalid
from ..core.validation import is_line, is_text
from ..storage import Database, Transaction, portions

MAX_TITLE_CHARACTERS: Final = 120  # the most characters of a title that the host sets
MAX_DERIVED_CHARACTERS: Final = 60  # the most characters of a derived title

TITLE_TABLES: Final = (
    "CREATE TABLE wa_title(thread TEXT PRIMARY KEY, title TEXT NOT NULL)",
    # Finds the first message of a thread without reading the others.
    "CREATE INDEX wa_message_said ON wa_message(thread, depth, at) WHERE kind='message'",
)
"""A migration that adds titles."""

_SET: Final = "INSERT INTO wa_title(thread, title) VALUES(?, ?) ON CONFLICT(thread) DO UPDATE SET title=excluded.title"
_DROP: Final = "DELETE FROM wa_title WHERE thread=?"
_GET: Final = "SELECT title FROM wa_title WHERE thread=?"
_COPY: Final = """INSERT INTO wa_title(thread, title) SELECT CAST(? AS TEXT), title FROM wa_title WHERE thread=?
                  ON CONFLICT(thread) DO NOTHING"""
_TURN: Final = "SELECT id FROM wa_turn WHERE thread=? ORDER BY id DESC LIMIT 1"
_BRANCH: Final = "SELECT thread FROM wa_branch WHERE thread=?"
_NAMED: Final = "SELECT thread, title FROM wa_title WHERE thread IN ({})"
# The past of a branch is shared, so its first message can belong to another thread. The walk goes back from summary to
# summary, each of which names the one before it, and after the first summary from parent to parent.
_SHARED: Final = """WITH RECURSIVE chain(thread, id, parent, depth, summary, kind) AS (
                      SELECT b.thread, m.id, m.parent, m.depth, m.summary, m.kind
                      FROM wa_branch b JOIN wa_message m ON m.id=b.head WHERE b.thread IN ({})
                      UNION ALL
                      SELECT chain.thread, m.id, m.parent, m.depth, m.summary, m.kind FROM chain
                      JOIN wa_message m ON m.id=COALESCE(chain.summary, chain.parent) AND m.depth < chain.depth)
                    SELECT chain.thread, m.body FROM chain JOIN wa_message m ON m.id=chain.id
                    JOIN (SELECT thread, MIN(depth) AS depth FROM chain WHERE kind='message' GROUP BY thread) earliest
                      ON earliest.thread=chain.thread AND earliest.depth=chain.depth"""
_OWN: Final = """SELECT thread, body FROM wa_message WHERE id IN (
                   SELECT (SELECT m.id FROM wa_message m WHERE m.thread=t.thread AND m.kind='message'
                           ORDER BY m.turn, m.depth, m.at LIMIT 1)
                   FROM (SELECT DISTINCT thread FROM wa_turn WHERE thread IN ({})) t)"""


class ThreadTitles:
    """The titles in a database that was opened with the schemas `CONVERSATION` and `TURNS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, threads: Collection[str]) -> dict[str, str]:
        """The titles of threads by their keys. A thread without a message of a person has none.

        Raises:
            StorageInvalid: The row of a title was changed by another program.
        """
        found: dict[str, str] = {}
        for marks, some in portions(sorted(threads)):
            found |= await self._database.read(partial(self._read, marks=marks, threads=some))
        return found

    async def rename(self, thread: str, title: str | None) -> bool:
        """Set the title of a thread; None restores the derived one. False if the thread does not exist."""

        def work(transaction: Transaction) -> bool:
            # Held, so that a removal of the thread either waits for this or has finished before.
            if not (transaction.hold(_TURN, (thread,)) or transaction.hold(_BRANCH, (thread,))):
                return False
            if title is None:
                self.drop(transaction, thread)
            else:
                self.put_back(transaction, thread, title)
            return True

        return await self._database.transact(work)

    async def get(self, thread: str) -> str | None:
        """The title that the host set, or None."""
        rows = await self._database.read(lambda tx: tx.execute(_GET, (thread,)))
        return self._checked(thread, rows[0][0]) if rows else None

    @staticmethod
    def copy(transaction: Transaction, origin: str, thread: str) -> None:
        """Copy the title that the host set for the origin to a new branch, in the transaction that makes it."""
        transaction.execute(_COPY, (thread, origin))

    @staticmethod
    def put_back(transaction: Transaction, thread: str, title: str) -> None:
        """Write the title of a thread in a transaction."""
        transaction.execute(_SET, (thread, title))

    @staticmethod
    def drop(transaction: Transaction, thread: str) -> None:
        """Delete the title of a thread in a transaction."""
        transaction.execute(_DROP, (thread,))

    def _read(self, transaction: Transaction, marks: str, threads: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for thread, title in transaction.execute(_NAMED.format(marks), threads):
            found[thread] = self._checked(thread, title)
        for statement in (_SHARED, _OWN):
            # Both statements always run, so that every page takes the same number of reads.
            for thread, body in transaction.execute(statement.format(marks), threads):
                if thread not in found and (title := _derived(body)):
                    found[thread] = title
        return found

    def _checked(self, thread: str, title: object) -> str:
        if isinstance(title, str) and is_title(title):
            return title
        raise StorageInvalid(
            f"the title of thread {thread!r} in {self._database.name!r} is not valid", remedy="rename the thread"
        )


def is_title(value: object) -> bool:
    """Whether a thread can have this title."""
    return is_line(value, MAX_TITLE_CHARACTERS)


def _derived(body: str) -> str:
    """The first words of a message. Empty if it cannot be read; `history` raises an error for it."""
    text: object = None
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        text = json.loads(body).get("text")
    if not isinstance(text, str):
        return ""
    # Complete words of printable characters. Only the beginning of a long text is read, enough for a title.
    words = "".join(" " if mark.isspace() else mark for mark in text[:4096] if mark.isspace() or mark.isprintable())
    line = " ".join(words.split())
    if len(line) <= MAX_DERIVED_CHARACTERS:
        return line
    cut = line[:MAX_DERIVED_CHARACTERS]  # one of these characters is replaced by the ellipsis
    complete = cut.rpartition(" ")[0] or cut[:-1]
    return f"{complete}…"


def _marks(some: Sequence[str]) -> str:
    return ", ".join("?" * len(some))


MAX_QUERY_CHARACTERS: Final = 200  # the most characters of a query
_HEADS_AT_ONCE: Final = 100
_SAID: Final = ("text", "params", "result", "payload")
"""The fields of a body with the texts of persons and the agent, and with the params and results of tasks."""

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f\x7f-\U0010ffff]+')  # characters that JSON does not escape
_SPECIAL: Final = re.compile("[!%_]")
_ESCAPED: Final = r"!\g<0>"
_HEADS: Final = """SELECT t.thread, (SELECT m.id FROM wa_message m WHERE m.thread=t.thread AND m.turn=t.id
                                     ORDER BY m.depth DESC, m.at DESC LIMIT 1)
                   FROM wa_turn t WHERE t.id IN ({})"""
_CHAINS: Final = """WITH RECURSIVE chain(head, id, parent, depth) AS (
                      SELECT id, id, parent, depth FROM wa_message WHERE id IN ({})
                      UNION ALL
                      SELECT chain.head, m.id, m.parent, m.depth FROM chain
                      JOIN wa_message m ON m.id=chain.parent AND m.depth=chain.depth - 1)
                    SELECT chain.head, m.id FROM chain JOIN wa_message m ON m.id=chain.id WHERE """
_SAYING: Final = f"{_CHAINS} m.kind NOT IN ('summary', 'plan', 'role') AND LOWER(m.body) LIKE ? ESCAPE '!'"
_SPEAKING: Final = f"{_CHAINS} m.author=?"
_BODIES: Final = "SELECT id, body FROM wa_message WHERE id IN ({})"


class ThreadSearch:
    """Searches the conversations in a database that was opened with the schemas `CONVERSATION` and `TURNS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def heads(self, turns: Sequence[str]) -> dict[str, str]:
        """The last message of each turn, by the key of its thread."""
        rows = await self._database.find(_HEADS, turns)
        return {thread: head for thread, head in rows if head is not None}

    async def saying(self, heads: Mapping[str, str], query: str) -> set[str]:
        """The threads with a message that contains a text. Case does not matter.

        Args:
            heads: The last message of each thread, by the key of the thread.
            query: The text to search for.
        """
        ends = sorted(set(heads.values()))
        found = await self._database.read(lambda tx: _saying(tx, ends, query)) if ends else set()
        return {thread for thread, head in heads.items() if head in found}

    async def speaking(self, heads: Mapping[str, str], account: str) -> set[str]:
        """The threads with a message of an account; see `saying`."""
        ends = sorted(set(heads.values()))
        given = (*ends, account)
        rows = await self._database.read(lambda tx: tx.execute(_SPEAKING.format(_marks(ends)), given)) if ends else []
        found = {head for head, _ in rows}
        return {thread for thread, head in heads.items() if head in found}


def check_query(value: object) -> str:
    """Return `value` if it is a valid query.

    Raises:
        InvalidArgument: It is not a valid query; the error does not show the value.
    """
    if isinstance(value, str) and is_text(value) and "\0" not in value and len(value) <= MAX_QUERY_CHARACTERS:
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`query` must be a text of 1 to {MAX_QUERY_CHARACTERS} characters, not only blanks, got {given}",
        remedy="shorten it, or leave it out",
    )


def _saying(transaction: Transaction, ends: Sequence[str], query: str) -> set[str]:
    wanted = query.lower()
    # Only the longest part that every engine folds in the same way and that JSON does not escape.
    part = max(_PLAIN.findall(wanted), key=len, default="")
    pattern = f"%{_SPECIAL.sub(_ESCAPED, part)}%"
    waiting: dict[str, set[str]] = {}  # the heads of the conversations that contain a message, by its id
    for head, message in transaction.execute(_SAYING.format(_marks(ends)), (*ends, pattern)):
        waiting.setdefault(message, set()).add(head)
    found: set[str] = set()
    for _, some in portions(list(waiting), _HEADS_AT_ONCE):
        left = [message for message in some if not waiting[message] <= found]
        for message, body in transaction.execute(_BODIES.format(_marks(left)), left) if left else ():
            if any(wanted in text.lower() for text in _texts(body)):
                found |= waiting[message]
    return found


def _texts(body: str) -> Iterator[str]:
    """All texts in a body. Nothing if it cannot be read; `history` raises an error for it."""
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(body)
    level = [value[name] for name in _SAID if name in value] if isinstance(value, dict) else []
    while level:
        one = level.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            level += one.values()
        elif isinstance(one, list):
            level += one
