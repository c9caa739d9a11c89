"""Removes a thread's messages, except those that another thread needs.

A message can be removed if no thread has it as its head and no message follows it. So the thread's own messages are
removed from the last one up, and then those that it shared with removed threads, until another thread needs one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...storage import Transaction

_OWN: Final = "SELECT id, parent FROM wa_message WHERE thread=? ORDER BY depth DESC"
_FOLLOWED: Final = """SELECT DISTINCT m.id FROM wa_message m JOIN wa_message child ON child.parent=m.id
                      WHERE m.thread=? AND child.thread<>?"""
_HEADS: Final = "SELECT head FROM wa_branch WHERE thread<>? AND head IS NOT NULL"
_HEAD: Final = "SELECT head FROM wa_branch WHERE thread=?"
_PLACE: Final = "SELECT thread, parent FROM wa_message WHERE id=?"
_CHILD: Final = "SELECT 1 FROM wa_message WHERE parent=? LIMIT 1"
_THERE: Final = """SELECT 1 WHERE EXISTS(SELECT 1 FROM wa_turn WHERE thread=?)
                   OR EXISTS(SELECT 1 FROM wa_branch WHERE thread=?)"""
_OTHERS: Final = """WITH RECURSIVE chain(id, thread, parent, depth) AS (
                      SELECT id, thread, parent, depth FROM wa_message
                      WHERE id IN (SELECT head FROM wa_branch WHERE thread=?)
                         OR id IN (SELECT m.parent FROM wa_message m JOIN wa_message p ON p.id=m.parent
                                   WHERE m.thread=? AND p.thread<>?)
                      UNION
                      SELECT m.id, m.thread, m.parent, m.depth FROM chain
                      JOIN wa_message m ON m.id=chain.parent AND m.depth=chain.depth - 1)
                    SELECT DISTINCT thread FROM chain WHERE thread<>?"""
_GOING: Final = "SELECT thread, turn, CASE WHEN kind='message' THEN body END FROM wa_message WHERE id IN ({})"
_DELETE: Final = "DELETE FROM wa_message WHERE id IN ({})"
_DROP_BRANCH: Final = "DELETE FROM wa_branch WHERE thread=?"
_ORPHANED: Final = "UPDATE wa_branch SET origin=thread WHERE origin=?"
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class RemovedMessages:
    """The messages that were removed.

    Attributes:
        count: How many messages.
        threads: The keys of the threads that appended them. After an edit there can be others than the removed one.
        turns: The turns that appended them.
        said: The texts of persons in them.
    """

    count: int
    threads: frozenset[str]
    turns: frozenset[str]
    said: frozenset[str]


@dataclass(slots=True)
class _Removal:
    """One removal, inside its transaction."""

    transaction: Transaction
    thread: str
    heads: frozenset[str]
    ends: Mapping[str, str | None]
    there: dict[str, bool] = field(default_factory=dict)
    removed: int = 0
    threads: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)

    def own(self) -> set[str]:
        """Delete the thread's own messages that no other thread needs. Returns the messages of others before them."""
        # Held before the search for followers: an append after one of them has finished, or will find no parent.
        rows: list[tuple[str, str | None]] = [(row[0], row[1]) for row in self._hold(_OWN, self.thread)]
        own = {message for message, _ in rows}
        needed = {row[0] for row in self._ask(_FOLLOWED, self.thread, self.thread)} | (self.heads & own)
        gone: list[str] = []
        followed: set[str] = set()
        for message, parent in rows:  # deepest first, so a message comes after those that follow it
            if message not in needed:
                gone.append(message)
            if parent in own and message in needed:
                needed.add(parent)
            elif parent is not None and parent not in own and message not in needed:
                followed.add(parent)
        self._delete(gone)
        return followed

    def shared(self, message: str | None) -> None:
        """Delete `message` and the messages before it, up to one that another thread needs."""
        while message is not None:
            found = self._hold(_PLACE, message)
            if not found or message in self.heads or self._ask(_CHILD, message):
                return
            [(thread, parent)] = found
            if self._is_there(thread) and self.ends.get(thread, message) == message:
                return  # the head of that thread, or the thread's head is not known
            self._delete([message])
            message = parent

    def _is_there(self, thread: str) -> bool:
        if thread not in self.there:
            self.there[thread] = thread != self.thread and bool(self._ask(_THERE, thread, thread))
        return self.there[thread]

    def _ask(self, statement: str, *given: str) -> list[tuple[str, ...]]:
        return self.transaction.execute(statement, given)

    def _hold(self, statement: str, *given: str) -> list[tuple[str, ...]]:
        return self.transaction.hold(statement, given, alone=True)

    def _delete(self, messages: Sequence[str]) -> None:
        """Delete messages; each comes after those that follow it."""
        for marks, some in portions(messages):
            for thread, turn, body in self.transaction.execute(_GOING.format(marks), some):
                self.threads.add(thread)
                self.turns.add(turn)
                text = None if body is None else json.loads(body).get("text")
                self.said |= {text} if isinstance(text, str) else set()
            self.transaction.execute(_DELETE.format(marks), some)
        self.removed += len(messages)


def portions(ids: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Split ids into portions, each with the question marks for a statement."""
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        yield ", ".join("?" * len(some)), some


def sharers(transaction: Transaction, thread: str) -> frozenset[str]:
    """The keys of threads, existing or removed, whose messages are in the past of a thread."""
    return frozenset(row[0] for row in transaction.execute(_OTHERS, (thread,) * 4))


def remove_messages(transaction: Transaction, thread: str, ends: Mapping[str, str | None]) -> RemovedMessages:
    """Delete the messages that only this thread reaches, and the thread's branch row.

    Delete its turns after this, and the turns of other threads whose messages were deleted.

    Args:
        transaction: The transaction that also removes the thread's other data.
        thread: The thread's key.
        ends: The heads of the `sharers`. Messages of a sharer that is not in here stay.
    """
    heads = frozenset(row[0] for row in transaction.execute(_HEADS, (thread,)))
    removal = _Removal(transaction, thread, heads, ends)
    branch: str | None = next((row[0] for row in transaction.execute(_HEAD, (thread,))), None)
    transaction.execute(_DROP_BRANCH, (thread,))
    transaction.execute(_ORPHANED, (thread,))
    for message in (*removal.own(), branch):
        removal.shared(message)
    return RemovedMessages(
        removal.removed, frozenset(removal.threads), frozenset(removal.turns), frozenset(removal.said)
    )


__all__ = ["RemovedMessages", "portions", "remove_messages", "sharers"]
