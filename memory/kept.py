"""Marks of kept messages, one row for each message of a thread. The messages themselves are in the log.

A mark belongs to a thread, not to the message. A fork begins with copies of its origin's marks, which then change
independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..core import Clock, SystemClock
from ..core.errors import InvalidArgument
from ..storage import Database, Transaction
from .conversation import MessageKind
from .stored import stored_moment

MOST: Final = 100
"""The most messages of one thread that can be kept."""

KEPT_TABLES: Final = (
    # The newest summary before a message, so that it is found without walking the chain.
    "ALTER TABLE wa_message ADD COLUMN summary TEXT",
    """CREATE TABLE wa_kept(
         thread TEXT NOT NULL,
         message TEXT NOT NULL,
         at BIGINT NOT NULL,
         PRIMARY KEY(thread, message))""",
)
"""A migration that adds summaries and marks."""

_SEEN: Final[tuple[MessageKind, ...]] = ("message", "answer", "result", "schedule")
_KEPT: Final = "SELECT message FROM wa_kept WHERE thread=? ORDER BY at, message"
_KEEP: Final = "INSERT INTO wa_kept(thread, message, at) VALUES(?, ?, ?) ON CONFLICT(thread, message) DO NOTHING"
_UNKEEP: Final = "DELETE FROM wa_kept WHERE thread=? AND message=? RETURNING message"
_COPY: Final = """INSERT INTO wa_kept(thread, message, at) SELECT CAST(? AS TEXT), message, at FROM wa_kept
                  WHERE thread=? ON CONFLICT(thread, message) DO NOTHING"""
_DROP: Final = "DELETE FROM wa_kept WHERE thread=?"


class KeptMessages:
    """The marks in a database that was opened with the schema `CONVERSATION`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def of(self, thread: str) -> tuple[str, ...]:
        """The ids of the kept messages, in the order in which they were marked."""
        return tuple(message for (message,) in await self._database.read(lambda tx: tx.execute(_KEPT, (thread,))))

    async def keep(self, thread: str, message: str, kind: MessageKind) -> None:
        """Mark a message. A second mark changes nothing.

        Args:
            thread: The thread.
            message: The id of one of its messages.
            kind: The message's kind.

        Raises:
            InvalidArgument: No model sees messages of this kind, or the thread keeps the most messages already.
        """
        if kind not in _SEEN:
            raise InvalidArgument(
                f"the message {message!r} is of kind {kind!r}, which the model does not see",
                remedy=f"keep a message of one of the kinds {', '.join(_SEEN)}",
            )
        at = stored_moment(self._clock.now())

        def work(transaction: Transaction) -> None:
            kept = [found for (found,) in transaction.execute(_KEPT, (thread,))]
            if len(kept) >= MOST and message not in kept:
                raise InvalidArgument(
                    f"thread {thread!r} keeps {MOST} messages, which is the limit", remedy="unkeep one of them first"
                )
            transaction.execute(_KEEP, (thread, message, at))

        await self._database.transact(work)

    async def unkeep(self, thread: str, message: str) -> bool:
        """Remove a mark; False if there was none."""
        return bool(await self._database.transact(lambda tx: tx.execute(_UNKEEP, (thread, message))))

    @staticmethod
    def copy(transaction: Transaction, origin: str, thread: str) -> None:
        """Copy the marks of the origin to a new branch, in the transaction that makes it."""
        transaction.execute(_COPY, (thread, origin))

    @staticmethod
    def put_back(transaction: Transaction, thread: str, messages: Sequence[str], *, at: int) -> None:
        """Write the marks of an imported thread, in the transaction that makes it.

        Args:
            transaction: The transaction to write in.
            thread: The key of the thread.
            messages: The kept messages, in the order in which they were marked.
            at: The time of the first mark, in microseconds since 1970.
        """
        for place, message in enumerate(messages[:MOST]):
            transaction.execute(_KEEP, (thread, message, at + place))

    @staticmethod
    def drop(transaction: Transaction, thread: str) -> None:
        """Delete all marks of a thread, in the transaction that removes it."""
        transaction.execute(_DROP, (thread,))
