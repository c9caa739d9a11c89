"""Putting messages back that were read out of a log: each can be read again and has the id that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from ...core import check_id
from ...core.errors import AttachmentInvalid, InvalidArgument, UnknownMessage
from ...core.validation import describe_failure
from ...storage import Transaction
from .._conversation import Draft, MessageKind
from .._log import insert_rows, rows_of
from .._moments import stored_moment
from .._stored import StoredMessage
from ..attachments import Attachment, read_references
from ..bodies import misfits

_THREAD: Final = "SELECT thread FROM wa_message WHERE id=?"
_LEVELS: Final = 500  # of a body; whoever reads one has frames of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage:
    """A message as a file holds it.

    Attributes:
        id: Its id.
        parent: The message before it; None for the first.
        turn_id: The turn that appended it.
        author: Who said it.
        kind: What it is.
        body: The content.
        at: When it was appended, in UTC.
    """

    id: str
    parent: str | None
    turn_id: str
    author: str
    kind: MessageKind
    body: Mapping[str, Any]
    at: datetime

    def put_back(self, transaction: Transaction, root: str) -> bool:
        """Write the message, which was checked, behind its parent; False where it is there itself.

        Args:
            transaction: Where to.
            root: The key of the thread that the conversation began on.

        Raises:
            UnknownMessage: The parent was there and is gone: somebody removes it meanwhile.
        """
        if transaction.execute(_THREAD, (self.id,)):
            return False
        rows = rows_of(self.parent, [self.draft], thread=root, turn_id=self.turn_id)
        insert_rows(transaction, rows, self.stored_at)
        return True

    @property
    def stored_at(self) -> int:
        """`at` as a row holds it, microseconds since 1970."""
        return stored_moment(self.at)

    @property
    def draft(self) -> Draft:
        """What was appended."""
        return Draft(self.author, self.kind, self.body)


class ReadChain:
    """Checks the messages of one conversation, oldest first, as strictly as whoever reads them and goes on from them.

    Args:
        root: The key of the thread that it began on.

    Attributes:
        last: The newest message so far.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._places: dict[str, int] = {}
        self.last: str | None = None

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> Mapping[str, int]:
        """The messages so far, each with how many stand before it."""
        return self._places

    def add(self, message: ReadMessage) -> tuple[Attachment, ...]:
        """Check the next message; what is attached to it.

        Raises:
            InvalidArgument: It cannot be read again, or is not what its id says or its parent leads to. The text names
                the field, and shows nothing of it.
        """
        if message.parent != self.last:
            raise _invalid("does not follow the one before it")
        attached = _readable(message, self._root, len(self))
        if message.kind == "summary" and not self._stands(message.body):
            raise _invalid("cannot be read: what body.last and body.results name is not before it")
        self._places[message.id] = len(self)
        self.last = message.id
        return attached

    def _stands(self, body: Mapping[str, Any]) -> bool:
        last, results = self._places.get(body["last"], -1), body["results"]
        known = all(isinstance(one, str) and self._places.get(one, last + 1) <= last for one in results)
        counted = not isinstance(body["messages"], bool) and 0 <= body["messages"] <= len(self)
        return last >= 0 and known and len(set(results)) == len(results) and counted


def root_of(transaction: Transaction, first: str) -> str:
    """The key of the thread that a conversation began on, which the id of its first message depends on.

    Raises:
        UnknownMessage: It was removed meanwhile.
    """
    for (thread,) in transaction.execute(_THREAD, (first,)):
        return str(thread)
    raise UnknownMessage(f"message {first!r} was removed meanwhile", remedy="use an id from the thread's history")


def _readable(message: ReadMessage, root: str, depth: int) -> tuple[Attachment, ...]:
    """Read a message as it would be stored; what is attached to it.

    Raises:
        InvalidArgument: It cannot be read, or has another id than it should.
    """
    wrong = [name for name, given in (("turn", message.turn_id), ("author", message.author)) if not _is_id(given)]
    row = None
    with suppress(InvalidArgument):
        if not wrong and not _deep(message.body):
            [row] = rows_of(message.parent, [message.draft], thread=root, turn_id=message.turn_id)
    if row is None:
        raise _invalid(f"cannot be read: {f'{wrong[0]}: no id' if wrong else 'body: not JSON, or nested too deep'}")
    if row.id != message.id:
        raise _invalid("has an id that is not that of its message")
    problem = ""
    try:
        StoredMessage.model_validate({**row._asdict(), "depth": depth, "at": message.stored_at})
        attached = read_references(message.body) if "attachments" in message.body else ()
    except ValidationError as failure:
        problem = describe_failure(failure)
    except AttachmentInvalid:
        problem = "body.attachments: not as they are written"
    else:
        problem = ", ".join(f"body.{name}" for name in misfits(message.kind, message.body))
        if not problem:
            return attached
    raise _invalid(f"cannot be read: {problem}")


def _is_id(value: str) -> bool:
    with suppress(InvalidArgument):
        return bool(check_id("it", value))
    return False


def _deep(value: object) -> bool:
    level = [value]
    for _ in range(_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [one for each in inner for one in each]
        if not level:
            return False
    return True


def _invalid(problem: str) -> InvalidArgument:
    return InvalidArgument(problem, remedy="use the file as it was exported")


__all__ = ["ReadChain", "ReadMessage", "root_of"]
