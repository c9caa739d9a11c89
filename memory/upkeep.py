"""Removes a thread's messages, except those that another thread needs.

A message can be removed if no thread has it as its head and no message follows it. So the thread's own messages are
removed from the last one up, and then those that it shared with removed threads, until another thread needs one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ValidationError

from ..core.errors import AttachmentInvalid, InvalidArgument, UnknownMessage
from ..core.scope import is_id
from ..core.validation import ClosedModel, describe_failure
from ..storage import Transaction, portions
from .attachments import Attachment, read_references
from .conversation import Draft, Message, MessageKind, StoredMessage, stored_moment, validation_errors
from .log import insert_rows, rows_of

_THREAD: Final = "SELECT thread FROM wa_message WHERE id=?"
_CHAIN: Final = """WITH RECURSIVE chain(id, parent, depth, thread) AS (
                     SELECT id, parent, depth, thread FROM wa_message WHERE id=?
                     UNION ALL
                     SELECT m.id, m.parent, m.depth, m.thread FROM chain
                     JOIN wa_message m ON m.id=chain.parent AND m.depth=chain.depth - 1)
                   SELECT id, thread FROM chain ORDER BY depth"""
MAX_LEVELS: Final = 500  # the most levels of a body, well below Python's recursion limit


def _parsed(value: object) -> object:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    with suppress(OverflowError):
        return value.astimezone(UTC)
    raise ValueError("beyond the calendar")


AwareMoment = Annotated[AwareDatetime, BeforeValidator(_parsed), AfterValidator(_in_utc)]
"""A time in a file, converted to UTC when it is read."""


class ReadMessage(ClosedModel, strict=True):
    """A message in an exported file.

    Attributes:
        id: Its id.
        parent: The message before it; None for the first.
        turn: The turn that appended it.
        author: Who said it.
        kind: The kind of message.
        body: The content.
        at: When it was appended.
    """

    id: str
    parent: str | None
    turn: str
    author: str
    kind: MessageKind
    body: dict[Any, Any]  # not str keys, because pydantic's str refuses half a surrogate pair
    at: AwareMoment

    @staticmethod
    def of(message: Message) -> ReadMessage:
        """Convert a message of the log for a file."""
        fields = {name: getattr(message, name) for name in ("id", "parent", "author", "kind", "at")}
        return ReadMessage.model_construct(turn=message.turn_id, body=dict(message.body), **fields)

    def put_back(self, transaction: Transaction, root: str) -> bool:
        """Write the checked message after its parent; False if it is stored already.

        Args:
            transaction: The transaction to write in.
            root: The key of the thread that the conversation began on.

        Raises:
            UnknownMessage: The parent was removed during the import.
        """
        if transaction.execute(_THREAD, (self.id,)):
            return False
        rows = rows_of(self.parent, [self.draft], thread=root, turn_id=self.turn)
        insert_rows(transaction, rows, self.stored_at)
        return True

    @property
    def stored_at(self) -> int:
        """`at` in the form of rows, microseconds since 1970."""
        return stored_moment(self.at)

    @property
    def draft(self) -> Draft:
        """The draft of the message."""
        return Draft(self.author, self.kind, self.body)


class ReadChain:
    """Checks the messages of one conversation, oldest first, as strictly as when a turn resumes.

    Args:
        root: The key of the thread that the conversation began on.

    Attributes:
        places: The ids of the messages so far, each with the number of messages before it.
        last: The id of the newest one.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.places: dict[str, int] = {}
        self.last: str | None = None

    def add(self, message: ReadMessage) -> tuple[Attachment, ...]:
        """Check the next message and return its attachments.

        Raises:
            InvalidArgument: It is invalid, or does not match its id or parent. The text names the field and does not
                show its value.
        """
        if message.parent != self.last:
            raise _invalid("does not follow the one before it")
        attached = _attached(message, self._root, len(self.places))
        if message.kind == "summary" and not self._is_valid_summary(message.body):
            raise _invalid("cannot be read: body.last and body.results must name earlier messages")
        self.places[message.id] = len(self.places)
        self.last = message.id
        return attached

    def _is_valid_summary(self, body: Mapping[str, Any]) -> bool:
        last, results = self.places.get(body["last"], -1), body["results"]
        known = all(isinstance(one, str) and self.places.get(one, last + 1) <= last for one in results)
        counted = not isinstance(body["messages"], bool) and 0 <= body["messages"] <= len(self.places)
        return last >= 0 and known and len(set(results)) == len(results) and counted


def chain_of(transaction: Transaction, head: str) -> tuple[list[str], str]:
    """The ids of a conversation's messages, oldest first, and the key of the thread that it began on.

    Raises:
        UnknownMessage: The last message was removed.
    """
    rows = transaction.execute(_CHAIN, (head,))
    if not rows:
        raise UnknownMessage(f"message {head!r} was just removed", remedy="use an id from the thread's history")
    return [message for message, _ in rows], str(rows[0][1])


def _attached(message: ReadMessage, root: str, depth: int) -> tuple[Attachment, ...]:
    """Validate a message as it would be stored, and return its attachments.

    Raises:
        InvalidArgument: It is invalid, or its id does not match its content.
    """
    for name in ("turn", "author"):
        if not is_id(getattr(message, name)):
            raise _invalid(f"cannot be read: {name}: must be a valid id")
    row = None
    with suppress(InvalidArgument):
        if not _is_too_deep(message.body):
            [row] = rows_of(message.parent, [message.draft], thread=root, turn_id=message.turn)
    if row is None:
        raise _invalid("cannot be read: body: not JSON, or nested too deep")
    if row.id != message.id:
        raise _invalid("has an id that is not that of its message")
    problem, attached = "", tuple[Attachment, ...]()
    try:
        StoredMessage.model_validate({**row._asdict(), "depth": depth, "at": message.stored_at})
        attached = read_references(message.body) if "attachments" in message.body else ()
        problem = ", ".join(f"body.{name}" for name in validation_errors(message.kind, message.body))
    except ValidationError as failure:
        problem = describe_failure(failure)
    except AttachmentInvalid:
        problem = "body.attachments: not valid references"
    if problem:
        raise _invalid(f"cannot be read: {problem}")
    return attached


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [one for each in inner for one in each]
        if not level:
            return False
    return True


def _invalid(problem: str) -> InvalidArgument:
    return InvalidArgument(problem, remedy="use the file as it was exported")


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
_GOING: Final = (
    "SELECT thread, turn, CASE WHEN kind IN ('message', 'word') THEN body END FROM wa_message WHERE id IN ({})"
)
_DELETE: Final = "DELETE FROM wa_message WHERE id IN ({})"
_DROP_BRANCH: Final = "DELETE FROM wa_branch WHERE thread=?"
_ORPHANED: Final = "UPDATE wa_branch SET origin=thread WHERE origin=?"


@dataclass(slots=True)
class RemovedMessages:
    """The messages that were removed.

    Attributes:
        count: How many messages.
        threads: The keys of the threads that appended them. After an edit there can be others than the removed one.
        turns: The turns that appended them.
        said: The texts of persons in them.
    """

    count: int = 0
    threads: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Removal:
    """One removal, inside its transaction."""

    transaction: Transaction
    thread: str
    heads: frozenset[str]
    ends: Mapping[str, str | None]
    there: dict[str, bool] = field(default_factory=dict)
    removed: RemovedMessages = field(default_factory=RemovedMessages)

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
                self.removed.threads.add(thread)
                self.removed.turns.add(turn)
                text = None if body is None else json.loads(body).get("text")
                self.removed.said |= {text} if isinstance(text, str) else set()
            self.transaction.execute(_DELETE.format(marks), some)
        self.removed.count += len(messages)


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
    return removal.removed
