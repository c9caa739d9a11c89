"""The rows of branches. A branch is a thread that continues from a message of another thread or of its own past.

Messages point to their parents, so a branch needs only a head: the past is shared and stored once. After its head was
set, the thread's checkpoints have newer heads. `graphs.checkpoints.Heads` decides which of the two is current.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ..core import Clock, SystemClock
from ..core.errors import NameTaken, UnknownMessage
from ..storage import Database, Lease, Transaction, checked_row
from .conversation import Handed, KeptMessages, StoredHanded, StoredMoment, stored_moment
from .titles import ThreadTitles
from .turns import keys_of, name_of

BRANCH_TABLES: Final = (
    """CREATE TABLE wa_branch(
         thread TEXT PRIMARY KEY,
         head TEXT,
         origin TEXT NOT NULL,
         after TEXT NOT NULL,
         at BIGINT NOT NULL)""",
    "CREATE INDEX wa_branch_origin ON wa_branch(origin)",
)
"""A migration that adds branches. It is in the log's schema: a version without it would use wrong heads."""

HANDED_BRANCHES: Final = ("ALTER TABLE wa_branch ADD COLUMN handed TEXT",)
"""A migration that adds who speaks in a branch."""

_COLUMNS: Final = "thread, head, origin, after, at, handed"
_WRITE: Final = f"""INSERT INTO wa_branch({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(thread) DO UPDATE
                    SET head=excluded.head, origin=excluded.origin, after=excluded.after, at=excluded.at"""
_HAND: Final = "UPDATE wa_branch SET handed=? WHERE thread=? RETURNING thread"
_GET: Final = f"SELECT {_COLUMNS} FROM wa_branch WHERE thread=?"
_TAKEN: Final = """SELECT 1 WHERE EXISTS(SELECT 1 FROM wa_branch WHERE thread=?)
                   OR EXISTS(SELECT 1 FROM wa_turn WHERE thread=?)"""
_HEAD: Final = "SELECT id FROM wa_message WHERE id=?"
_COUNT: Final = "SELECT COUNT(*) FROM wa_branch WHERE origin=? AND thread<>origin"
_WITHOUT_TURNS: Final = f"""SELECT {_COLUMNS} FROM wa_branch
                            WHERE thread >= ? AND thread < ?
                              AND NOT EXISTS(SELECT 1 FROM wa_turn WHERE wa_turn.thread=wa_branch.thread)
                              AND (CAST(? AS BIGINT) IS NULL OR at < ? OR (at=? AND thread < ?))
                            ORDER BY at DESC, thread DESC LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The head that was set for a thread.

    Attributes:
        thread: The key of the thread.
        head: The message that it continues from; None is the empty conversation.
        origin: The key of the thread that it was branched off; its own key if it went back in its own past.
        after: The turn of the thread's newest checkpoint at that time, empty if it had none. The head is current as
            long as this is the newest checkpoint's turn.
        at: The time at which it was set.
        handed: Who speaks in the thread as long as it has no turn; None is the World Agent.
    """

    thread: str
    head: str | None
    origin: str
    after: str = ""
    at: StoredMoment
    handed: StoredHanded = None

    @property
    def name(self) -> str:
        """The id of the thread within its workspace."""
        return name_of(self.thread)


class Branches:
    """The branches in a database that was opened with the schemas `CONVERSATION` and `TURNS`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def get(self, thread: str) -> Branch | None:
        """A thread's row, or None."""
        return await self._database.read(lambda tx: self.row_of(tx, thread))

    def row_of(self, transaction: Transaction, thread: str) -> Branch | None:
        """The same, in a transaction."""
        rows = transaction.execute(_GET, (thread,))
        return _branch(rows[0], self._database.name) if rows else None

    async def taken(self, thread: str) -> bool:
        """Whether a thread has turns or is a branch."""
        return await self._database.read(lambda tx: self.is_taken(tx, thread))

    @staticmethod
    def is_taken(transaction: Transaction, thread: str) -> bool:
        """As `taken`, in a transaction."""
        return bool(transaction.execute(_TAKEN, (thread, thread)))

    async def count(self, origin: str) -> int:
        """How many threads were branched off a thread."""
        [(found,)] = await self._database.read(lambda tx: tx.execute(_COUNT, (origin,)))
        return int(found)

    async def of_workspace(
        self, workspace: str, *, limit: int, prefix: str = "", before: tuple[datetime, str] | None = None
    ) -> tuple[Branch, ...]:
        """The branches of a workspace on which no turn has run yet, newest first.

        Args:
            workspace: The workspace.
            limit: The most branches to return.
            prefix: Only branches of threads whose ids begin so.
            before: Only branches that were made before this time, or at this time with a lower key.
        """
        at, thread = (None, "") if before is None else (stored_moment(before[0]), before[1])
        given = (*keys_of(workspace, prefix), at, at, at, thread, limit)
        rows = await self._database.read(lambda tx: tx.execute(_WITHOUT_TURNS, given))
        return tuple(_branch(row, self._database.name) for row in rows)

    def branch(
        self, thread: str, head: str | None, *, origin: str, after: str = "", handed: Handed | None = None
    ) -> Branch:
        """Make a branch with the current time, without writing it; see `Branch`."""
        return Branch(thread=thread, head=head, origin=origin, after=after, at=self._clock.now(), handed=handed)

    @staticmethod
    def hand(transaction: Transaction, thread: str, handed: Handed | None) -> bool:
        """Let another one speak in a branch from its first turn on; False if there is none."""
        return bool(transaction.execute(_HAND, (None if handed is None else handed.to_text(), thread)))

    async def add(self, branch: Branch, *, lease: Lease) -> None:
        """Write a new thread and forget its lease, so that no row shows that its name was owned.

        Raises:
            NameTaken: A thread with this name exists.
            LeaseLost: Another owner took over the name.
        """

        def work(transaction: Transaction) -> None:
            self.write(transaction, [branch], [lease])
            lease.forget(transaction)

        await self._database.transact(work)

    @staticmethod
    def write(transaction: Transaction, branches: Sequence[Branch], leases: Sequence[Lease]) -> None:
        """Write branches, and copy marks and titles to new threads, in a transaction.

        Args:
            transaction: The transaction to write in.
            branches: The branches. If a thread goes back in its own past, its existing row is replaced.
            leases: The lease of each thread.

        Raises:
            NameTaken: A thread with the name of a new one exists.
            UnknownMessage: The head was removed.
            LeaseLost: Another owner took over one of the threads.
        """
        for lease in leases:
            lease.verify(transaction)
        for branch in branches:
            if branch.thread != branch.origin and transaction.execute(_TAKEN, (branch.thread, branch.thread)):
                raise NameTaken(f"the thread {branch.thread!r} exists already", remedy="use another name")
            # Held, so that a removal of messages either waits for this or has finished before.
            if branch.head is not None and not transaction.hold(_HEAD, (branch.head,)):
                raise UnknownMessage(
                    f"message {branch.head!r} was just removed", remedy="use an id from the thread's history"
                )
            transaction.execute(_WRITE, _row(branch))
            if branch.thread != branch.origin:
                KeptMessages.copy(transaction, branch.origin, branch.thread)
                ThreadTitles.copy(transaction, branch.origin, branch.thread)


def _row(branch: Branch) -> tuple[object, ...]:
    handed = None if branch.handed is None else branch.handed.to_text()
    return branch.thread, branch.head, branch.origin, branch.after, stored_moment(branch.at), handed


def _branch(row: tuple[Any, ...], database: str) -> Branch:
    return checked_row(Branch, row, what=f"the branch {row[0]!r}", database=database)
