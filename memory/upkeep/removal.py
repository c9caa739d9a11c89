"""Removing a thread's messages, all but those that another thread stands on.

A message may go when it is no thread's head and nothing follows it. So the thread's own messages go from the last one
up, and then those it shared with threads that are gone, for as long as nobody else needs them.
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
    """What went with a thread's messages.

    Attributes:
        count: How many they are.
        threads: The keys of the threads that they were said on; after an edit, not the removed one's alone.
        turns: The turns that said them.
        said: What persons said in them.
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
        """Delete the thread's own messages that nobody needs; give those that they followed."""
        # Held before anybody looks for what follows: whoever appends behind one of them is done, or finds none.
        rows: list[tuple[str, str | None]] = [(row[0], row[1]) for row in self._hold(_OWN, self.thread)]
        own = {message for message, _ in rows}
        needed = {row[0] for row in self._ask(_FOLLOWED, self.thread, self.thread)} | (self.heads & own)
        gone: list[str] = []
        followed: set[str] = set()
        for message, parent in rows:  # what follows a message comes before it
            if message not in needed:
                gone.append(message)
            if parent in own and message in needed:
                needed.add(parent)
            elif parent is not None and parent not in own and message not in needed:
                followed.add(parent)
        self._delete(gone)
        return followed

    def shared(self, message: str | None) -> None:
        """Delete `message` and what stands before it, up to what somebody needs."""
        while message is not None:
            found = self._hold(_PLACE, message)
            if not found or message in self.heads or self._ask(_CHILD, message):
                return
            [(thread, parent)] = found
            if self._is_there(thread) and self.ends.get(thread, message) == message:
                return  # its head, or one of a thread that nobody has looked at
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
        """Delete messages, none before those that follow it."""
        for marks, some in portions(messages):
            for thread, turn, body in self.transaction.execute(_GOING.format(marks), some):
                self.threads.add(thread)
                self.turns.add(turn)
                text = None if body is None else json.loads(body).get("text")
                self.said |= {text} if isinstance(text, str) else set()
            self.transaction.execute(_DELETE.format(marks), some)
        self.removed += len(messages)


def portions(ids: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Some ids at a time, after as many marks for a statement."""
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        yield ", ".join("?" * len(some)), some


def sharers(transaction: Transaction, thread: str) -> frozenset[str]:
    """The keys of threads, there or gone, that said something that stands before what a thread said."""
    return frozenset(row[0] for row in transaction.execute(_OTHERS, (thread,) * 4))


def remove_messages(transaction: Transaction, thread: str, ends: Mapping[str, str | None]) -> RemovedMessages:
    """Delete the messages that no thread but this one reaches, and the thread's row among the branches.

    Its turns are to be deleted after it, and those of other threads that said what is gone.

    Args:
        transaction: What else is removed of the thread is removed in it too.
        thread: The thread's key.
        ends: The heads of the `sharers`; what one of them said stays if it is not here.
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
