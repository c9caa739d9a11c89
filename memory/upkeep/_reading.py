"""Putting messages back that were read out of a log: each has the id that follows from what it says, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...core.errors import InvalidArgument
from ...storage import Transaction
from .._conversation import Draft, MessageKind
from .._log import insert_rows, rows_of

_THREAD: Final = "SELECT thread FROM wa_message WHERE id=?"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


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

    def check(self, root: str) -> None:
        """Compare the id with what the message says and where it stands.

        Args:
            root: The key of the thread that the conversation began on.

        Raises:
            InvalidArgument: They differ, or the message is none; the text shows nothing of it.
        """
        [row] = rows_of(self.parent, [self._draft], thread=root, turn_id=self.turn_id)
        if row.id != self.id:
            raise InvalidArgument("an id is not that of its message", remedy="use the file as it was exported")

    def put_back(self, transaction: Transaction, root: str) -> bool:
        """Write the message, which was checked, behind its parent, which is there; False where it is there itself.

        Args:
            transaction: Where to.
            root: The key of the thread that the conversation began on.
        """
        if transaction.execute(_THREAD, (self.id,)):
            return False
        rows = rows_of(self.parent, [self._draft], thread=root, turn_id=self.turn_id)
        insert_rows(transaction, rows, (self.at - _EPOCH) // _MICROSECOND, None)
        return True

    @property
    def _draft(self) -> Draft:
        return Draft(self.author, self.kind, self.body)


def root_of(transaction: Transaction, first: str) -> str:
    """The key of the thread that a conversation began on, which the id of its first message depends on."""
    [(thread,)] = transaction.execute(_THREAD, (first,))
    return str(thread)


__all__ = ["ReadMessage", "root_of"]
