"""The inbox of a thread: messages that came beside its turns, each in the order in which it came (T15, T16).

A running turn reads steering and reports between the end of its calls and the next thought. Queued messages begin one
turn each. A row that was read stays, so that a turn that resumes reads the same again, and a repeated put adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from threading import Event
from typing import Any, Final, Literal

from pydantic import Json

from ..core import Clock, Scope, SystemClock, canonical_json
from ..storage import Database, Moment, Row, Transaction, read_row
from .conversation import OPEN

InboxKind = Literal["steer", "queue", "report"]


class StoredInboxRow(Row):
    """A row of `wa_inbox`."""

    id: str
    thread: str
    workspace: str
    name: str
    account: str | None
    channel: str | None
    place: float
    kind: InboxKind
    start: Json[dict[str, Any]]
    role: Json[dict[str, Any]] | None
    at: Moment
    turn: str | None
    round: int | None
    step: int | None
    began: int
    code: str | None


_NAMES: Final = tuple(StoredInboxRow.model_fields)
COLUMNS: Final = ", ".join(_NAMES)
"""The columns of `wa_inbox`, as `Inbox.read` takes them."""

INBOX_TABLES: Final = (
    """CREATE TABLE wa_inbox(
         id TEXT PRIMARY KEY,
         thread TEXT NOT NULL,
         workspace TEXT NOT NULL,
         name TEXT NOT NULL,
         account TEXT,
         channel TEXT,
         place DOUBLE PRECISION NOT NULL,
         kind TEXT NOT NULL,
         start TEXT NOT NULL,
         role TEXT,
         at DOUBLE PRECISION NOT NULL,
         turn TEXT,
         round BIGINT,
         step BIGINT,
         began BIGINT NOT NULL DEFAULT 0,
         code TEXT)""",
    "CREATE INDEX wa_inbox_unread ON wa_inbox(thread, place, id) WHERE turn IS NULL",
    "CREATE INDEX wa_inbox_turn ON wa_inbox(turn) WHERE turn IS NOT NULL",
    "CREATE INDEX wa_inbox_workspace ON wa_inbox(workspace) WHERE turn IS NULL",
    "CREATE INDEX wa_inbox_thread ON wa_inbox(thread, place)",
)
"""A migration of the turns: the end of a turn and its inbox are written in one transaction."""

_INSERT: Final = f"""INSERT INTO wa_inbox({COLUMNS}) VALUES({", ".join("?" * len(_NAMES))})
                     ON CONFLICT(id) DO NOTHING RETURNING id"""
_GET: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE id=?"
_UNREAD: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE thread=? AND turn IS NULL ORDER BY place, id LIMIT 1000"
_TAKEN: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE turn=? AND began=0 ORDER BY step, place, id"
_BEGUN: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE turn=? AND began<>0"
_TAKE: Final = "UPDATE wa_inbox SET turn=?, round=?, step=? WHERE id=? AND turn IS NULL RETURNING id"
_BEGIN: Final = "UPDATE wa_inbox SET turn=?, began=1 WHERE id=? AND turn IS NULL RETURNING id"
_GIVE_BACK: Final = "UPDATE wa_inbox SET turn=NULL, round=NULL, step=NULL, began=0 WHERE id=?"
_FAIL: Final = "UPDATE wa_inbox SET code=? WHERE id=? AND turn IS NULL RETURNING id"
_ROLE: Final = "UPDATE wa_inbox SET role=?, code=NULL WHERE id=? AND turn IS NULL RETURNING id"
_WITHDRAW: Final = "DELETE FROM wa_inbox WHERE id=? AND thread=? AND turn IS NULL AND kind<>'report' RETURNING id"
_MOVE: Final = "UPDATE wa_inbox SET place=? WHERE id=? AND turn IS NULL"
_DROP: Final = "DELETE FROM wa_inbox WHERE thread=? RETURNING start"
_CLEAR: Final = "DELETE FROM wa_inbox WHERE thread=? AND turn IS NULL"
_FORGET: Final = "DELETE FROM wa_inbox WHERE workspace=? AND account=? AND turn IS NULL"
# Of all messages: one that comes between two reads of the same step, such as after a crash, has a later place.
_LAST: Final = "SELECT MAX(place) FROM wa_inbox WHERE thread=?"
_FIRST: Final = "SELECT MIN(place) FROM wa_inbox WHERE thread=? AND turn IS NULL AND kind='queue'"
_COUNT: Final = "SELECT COUNT(*) FROM wa_inbox WHERE thread=? AND turn IS NULL"
# The end of a turn updates the same row, so it either comes first or returns the mark, on Postgres too.
_MARK: Final = """UPDATE wa_turn SET inbox=1 WHERE id=(SELECT MAX(id) FROM wa_turn WHERE thread=?)
                  RETURNING id, status"""
_WAITING: Final = "SELECT DISTINCT thread FROM wa_inbox WHERE workspace=? AND turn IS NULL"
# Those that have begun a turn are 2 once that is over, so that what is looked at does not grow with what was said.
_GOING: Final = """SELECT i.thread, i.id, i.turn, t.status FROM wa_inbox i LEFT JOIN wa_turn t ON t.id=i.turn
                  WHERE i.workspace=? AND i.began=1"""
_OVER: Final = "UPDATE wa_inbox SET began=2 WHERE id=? AND turn=?"

STEERABLE: Final = ("running", "paused", "stopped")
"""The statuses of a turn that reads messages, now or once it resumes."""
_PLACES: Final = """SELECT name, id, place, code, role FROM wa_inbox WHERE workspace=? AND turn IS NULL
                    ORDER BY thread, place, id LIMIT 1000"""

_ASKED: Final = ("start", "unattended", "guard", "model")

MOST: Final = 1000
"""The most unread messages of one thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A message of an inbox.

    Attributes:
        id: Its id.
        thread: The key of its thread.
        scope: The ids that a turn begun by it has.
        place: Its place among the unread messages of the thread.
        kind: `steer`, `queue` or `report`.
        start: What a turn begun by it starts with, as JSON, with its author and marks.
        role: The tiers of the role that it was queued under, and a keyed digest of that; None without one.
        at: When it was put in.
        turn: The turn that read it, or that it began; None if it is unread.
        round: How many steps of that turn had ended in calls.
        step: The step before which it was read.
        began: Whether it began its turn.
        code: The code of the error with which it could not begin one.
    """

    id: str
    thread: str
    scope: Scope
    place: float = 0.0
    kind: InboxKind
    start: Mapping[str, Any]
    role: Mapping[str, Any] | None = None
    at: datetime
    turn: str | None = None
    round: int | None = None
    step: int | None = None
    began: bool = False
    code: str | None = None

    @property
    def text(self) -> str:
        """The text of the message; empty if it starts a task or a skill."""
        return str(self.start["start"].get("message", ""))

    @property
    def author(self) -> str:
        """Who says it: a member, an account, or what reports."""
        return str(self.start.get("author") or self.start["sender"] or self.scope.account or "user")

    @property
    def asked(self) -> str:
        """What it says or starts, and for whom: equal for a repeat of it. A role is not in it."""
        start = self.start
        whose = [self.scope.account, self.scope.channel, start["on_behalf_of"], start["sender"]]
        return canonical_json([self.kind, *(start.get(name) for name in _ASKED), *whose])

    @property
    def marks(self) -> Sequence[str]:
        """The marks of its text."""
        marks: list[str] = self.start["marks"]
        return marks

    @property
    def body(self) -> dict[str, Any]:
        """The body of the message in the log that a running turn reads it as."""
        name, marks = self.start["name"], self.marks
        return {
            "text": self.text,
            **({} if name is None else {"name": name}),
            **({"untrusted": sorted(marks)} if marks else {}),
        }


class Inbox:
    """The inboxes of all threads in a database that was opened with the schema `TURNS`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def put(
        self,
        row: InboxRow,
        *,
        first: bool = False,
        allowed: Callable[[str | None, str, int], None] = lambda turn, status, unread: None,
        check: Callable[[Transaction], None] = lambda transaction: None,
    ) -> tuple[InboxRow, str | None]:
        """Add a message, and let the newest turn of the thread look for it.

        Args:
            row: The message. Its place is set here.
            first: Whether it comes before all queued ones.
            allowed: Gets the newest turn, its status and the number of unread messages; raises to refuse.
            check: Raises to refuse what is not there yet, in the same transaction.

        Returns:
            The stored message, and that turn if it runs or waits, so that it, or its end, finds the message.
        """

        def work(transaction: Transaction) -> tuple[InboxRow, str | None]:
            turn, status = _marked(transaction, row.thread)
            open_turn = turn if status in STEERABLE else None
            kept = transaction.execute(_GET, (row.id,))
            if kept:
                return _row(kept[0], self._database.name), open_turn
            [(unread,)] = transaction.execute(_COUNT, (row.thread,))
            allowed(turn, status, int(unread))
            check(transaction)
            return _inserted(transaction, row, first=first), open_turn

        return await self._database.transact(work)

    async def mark(self, thread: str) -> bool:
        """Let the newest turn of a thread look for messages; False if it neither runs nor waits.

        On Postgres a turn can begin without seeing a message that another transaction is adding.
        """
        _, status = await self._database.transact(lambda tx: _marked(tx, thread))
        return status in STEERABLE

    def read(self, rows: Sequence[tuple[Any, ...]]) -> tuple[InboxRow, ...]:
        """Messages from rows with `COLUMNS`."""
        return tuple([_row(row, self._database.name) for row in rows])

    @staticmethod
    def add(transaction: Transaction, row: InboxRow) -> None:
        """Add a message at the end, in a transaction. A repeat changes nothing."""
        transaction.execute(_MARK, (row.thread,))
        _inserted(transaction, row)

    async def get(self, id: str) -> InboxRow | None:
        """The message with an id, read or not."""
        rows = await self._database.read(lambda tx: tx.execute(_GET, (id,)))
        return _row(rows[0], self._database.name) if rows else None

    async def unread(self, thread: str) -> tuple[InboxRow, ...]:
        """The unread messages of a thread, in order."""
        return self.read(await self._database.read(lambda tx: tx.execute(_UNREAD, (thread,))))

    async def taken(self, turn: str) -> tuple[InboxRow, ...]:
        """The messages that a turn has read, besides one that began it, in the order in which it read them."""
        return self.read(await self._database.read(lambda tx: tx.execute(_TAKEN, (turn,))))

    async def waiting(self, workspace: str) -> tuple[str, ...]:
        """The keys of threads with unread messages, or with a message whose turn was interrupted or stopped."""

        def look(transaction: Transaction) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            return transaction.execute(_WAITING, (workspace,)), transaction.execute(_GOING, (workspace,))

        def settle(transaction: Transaction) -> None:
            for id, turn in over:
                transaction.execute(_OVER, (id, turn))

        unread, begun = await self._database.read(look)
        over = [(id, turn) for _, id, turn, status in begun if status not in OPEN]
        if over:
            await self._database.transact(settle)
        going = (thread for thread, _, _, status in begun if status in ("running", "stopped"))
        return tuple(dict.fromkeys([*(thread for (thread,) in unread), *going]))

    async def places(self, workspace: str) -> tuple[tuple[Any, ...], ...]:
        """What tells whether anything that waits in a workspace has changed; the name of the thread comes first."""
        return tuple(await self._database.read(lambda tx: tx.execute(_PLACES, (workspace,))))

    @staticmethod
    def take(transaction: Transaction, id: str, *, turn: str, round: int, step: int) -> bool:
        """Note that a turn reads a message before a step; False if it was withdrawn or read meanwhile."""
        return bool(transaction.execute(_TAKE, (turn, round, step, id)))

    @staticmethod
    def begin(transaction: Transaction, id: str, *, turn: str) -> bool:
        """Note that a message begins a turn, in the transaction that begins it; False if it was withdrawn or read."""
        return bool(transaction.execute(_BEGIN, (turn, id)))

    @staticmethod
    def give_back(transaction: Transaction, ids: Sequence[str]) -> None:
        """Let messages be read again, in the transaction that ends a turn whose conversation does not have them."""
        for id in ids:
            transaction.execute(_GIVE_BACK, (id,))

    async def beginner(self, turn: str) -> InboxRow | None:
        """The message that began a turn; None if no inbox had it."""
        rows = await self._database.read(lambda tx: tx.execute(_BEGUN, (turn,)))
        return _row(rows[0], self._database.name) if rows else None

    async def fail(self, id: str, code: str | None) -> bool:
        """Note why a message cannot begin a turn; False if it is not unread."""
        return bool(await self._database.transact(lambda tx: tx.execute(_FAIL, (code, id))))

    async def set_role(self, id: str, role: Mapping[str, Any] | None) -> bool:
        """Store something else about the role of a message; False if it is not unread."""
        given = (None if role is None else canonical_json(role), id)
        return bool(await self._database.transact(lambda tx: tx.execute(_ROLE, given)))

    async def withdraw(self, id: str, thread: str) -> bool:
        """Delete an unread message of a thread; False if there is none of this id, or it is a report."""
        return bool(await self._database.transact(lambda tx: tx.execute(_WITHDRAW, (id, thread))))

    async def reorder(self, thread: str, order: Callable[[Sequence[InboxRow]], Sequence[str]]) -> None:
        """Put unread messages of a thread in another order.

        Args:
            thread: The thread.
            order: Gets the unread messages, and returns the ids of those that change places, in their new order.
        """

        def work(transaction: Transaction) -> None:
            rows = self.read(transaction.hold(_UNREAD, (thread,), alone=True))
            ids = order(rows)
            places = sorted(row.place for row in rows if row.id in ids)
            for place, id in zip(places, ids, strict=True):
                transaction.execute(_MOVE, (place, id))

        await self._database.transact(work)

    async def clear(self, thread: str) -> None:
        """Delete the unread messages of a thread."""
        await self._database.transact(lambda tx: tx.execute(_CLEAR, (thread,)))

    async def forget_account(self, workspace: str, account: str) -> None:
        """Delete the unread messages of an account on all threads of a workspace."""
        await self._database.transact(lambda tx: tx.execute(_FORGET, (workspace, account)))

    @staticmethod
    def drop(transaction: Transaction, thread: str) -> list[str]:
        """Delete all messages of a thread, in the transaction that removes it; returns their texts."""
        starts = [json.loads(start)["start"] for (start,) in transaction.execute(_DROP, (thread,))]
        return [str(start.get("message", "")) for start in starts]


@dataclass(slots=True)
class Reading:
    """What one run of a turn reads of its inbox while it runs.

    Attributes:
        inbox: The inboxes.
        unread: Is set if it looks before its first thought as well: there was something as the turn began.
        again: What earlier runs of the turn read, by the step before which they did.
        loop: The path id of the task whose loop reads; empty for a conversation, None if none does.
        head: The last message of the thread, for a task, whose loop has no head of its own.
    """

    inbox: Inbox
    unread: Event
    again: dict[int, list[InboxRow]] = field(default_factory=dict)
    loop: str | None = ""
    head: str = ""

    async def recall(self, turn_id: str) -> None:
        """Find what earlier runs of the turn read."""
        rows = await self.inbox.taken(turn_id)
        self.again = {step: [*some] for step, some in groupby(rows, key=lambda row: row.step or 0)}

    def before(self, step: int) -> list[InboxRow]:
        """Take out what earlier runs read before a step, in order."""
        return [row for each in sorted(self.again) if each < step for row in self.again.pop(each)]

    async def found(self, thread: str, scope: Scope, member: str) -> list[InboxRow]:
        """The unread messages that the turn reads: those that steer or report, for the same account and member.

        Args:
            thread: The key of its thread.
            scope: The ids that it runs under.
            member: The member that it runs for.
        """
        self.unread.clear()
        rows = await self.inbox.unread(thread)
        own = (scope.account, member)
        return [
            row
            for row in rows
            if row.kind != "queue" and row.code is None and (row.scope.account, row.start["on_behalf_of"]) == own
        ]


def _marked(transaction: Transaction, thread: str) -> tuple[str | None, str]:
    """Let the newest turn of a thread look into the inbox; returns its id and its status, empty if there is none."""
    found = transaction.execute(_MARK, (thread,))
    return (str(found[0][0]), str(found[0][1])) if found else (None, "")


def _inserted(transaction: Transaction, row: InboxRow, *, first: bool = False) -> InboxRow:
    [(place,)] = transaction.execute(_FIRST if first else _LAST, (row.thread,))
    made = replace(row, place=0.0 if place is None else float(place) + (-1.0 if first else 1.0))
    transaction.execute(_INSERT, _values(made))
    return made


def _values(row: InboxRow) -> tuple[object, ...]:
    stored = {
        "workspace": row.scope.workspace,
        "name": row.scope.thread,
        "account": row.scope.account,
        "channel": row.scope.channel,
        "start": json.dumps(row.start, ensure_ascii=False, sort_keys=True),
        "role": None if row.role is None else canonical_json(row.role),
        "at": row.at.timestamp(),
        "began": int(row.began),
    }
    return tuple([stored[name] if name in stored else getattr(row, name) for name in _NAMES])


def _row(row: tuple[Any, ...], database: str) -> InboxRow:
    kept = read_row(StoredInboxRow, row, what=f"the message {row[0]!r} of an inbox", database=database)
    ids = {name: kept.pop(name) for name in ("workspace", "account", "channel")}
    kept["scope"] = Scope(**ids, thread=kept.pop("name"))
    for name in ("start", "role"):
        kept[name] = json.loads(kept[name] or "null")
    kept["at"] = datetime.fromtimestamp(kept["at"], UTC)
    kept["began"] = bool(kept["began"])
    return InboxRow(**kept)


__all__ = ["COLUMNS", "INBOX_TABLES", "Inbox", "InboxKind", "InboxRow", "Reading"]
