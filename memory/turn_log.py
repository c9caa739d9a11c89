"""The turn log: the events of recorded turns, and the keys that turns were begun with (T10).

A row has a group of events as lines of JSON. Numbers continue over all runs of a turn, in any process, so a reader can
continue after the last number it has seen. Only the process with the lease of the turn's thread can write. Events are
delivered only after they are stored here: `agent.recording` writes them and `agent.following` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from ..core import Clock, SystemClock
from ..core.errors import StorageInvalid
from ..core.events import TurnEvent, parse_event
from ..storage import Database, Row, Schema, Transaction, checked_row, read_row
from .conversation import TurnStatus

EVENTS: Final = Schema(
    "events",
    (
        (
            """CREATE TABLE wa_recorded(
                 turn TEXT PRIMARY KEY,
                 thread TEXT NOT NULL,
                 key TEXT,
                 asked TEXT,
                 gone BIGINT NOT NULL,
                 changed DOUBLE PRECISION)""",
            "CREATE UNIQUE INDEX wa_recorded_key ON wa_recorded(thread, key) WHERE key IS NOT NULL",
            "CREATE INDEX wa_recorded_changed ON wa_recorded(changed) WHERE changed IS NOT NULL",
            """CREATE TABLE wa_event(
                 turn TEXT NOT NULL,
                 first BIGINT NOT NULL,
                 last BIGINT NOT NULL,
                 lines TEXT NOT NULL,
                 PRIMARY KEY(turn, first))""",
        ),
    ),
)
# `gone` is the number of the last deleted event; `changed` is None if a turn has no events to delete.
_TOUCH: Final = """INSERT INTO wa_recorded(turn, thread, key, asked, gone, changed) VALUES(?, ?, ?, ?, 0, ?)
                   ON CONFLICT(turn) DO UPDATE SET changed=excluded.changed"""
_APPEND: Final = "INSERT INTO wa_event(turn, first, last, lines) VALUES(?, ?, ?, ?)"
_FIND: Final = "SELECT turn, thread, key, asked FROM wa_recorded WHERE thread=? AND key=?"
_KEY: Final = "SELECT key FROM wa_recorded WHERE turn=?"
_FREE: Final = "UPDATE wa_recorded SET key=NULL, asked=NULL WHERE turn=?"
_RECORDED: Final = "SELECT turn FROM wa_recorded WHERE turn IN ({})"
_LOOK: Final = """SELECT t.thread, t.workspace, t.status, r.gone,
                    (SELECT last FROM wa_event WHERE turn=t.id ORDER BY first DESC LIMIT 1)
                  FROM wa_turn t LEFT JOIN wa_recorded r ON r.turn=t.id WHERE t.id=?"""
# Starts at the row that contains the next event, which may be in the middle of the row.
_ROWS: Final = """SELECT first, last, lines FROM wa_event
                  WHERE turn=? AND first >= COALESCE((SELECT MAX(first) FROM wa_event WHERE turn=? AND first <= ?), 0)
                  ORDER BY first LIMIT ?"""
_BACK: Final = "SELECT first, lines FROM wa_event WHERE turn=? AND first < ? ORDER BY first DESC LIMIT 1"
_OLD: Final = """SELECT r.turn, (SELECT last FROM wa_event WHERE turn=r.turn ORDER BY first DESC LIMIT 1)
                 FROM wa_recorded r JOIN wa_turn t ON t.id=r.turn
                 WHERE r.changed < ? AND t.changed < ? AND t.status<>'running'
                 ORDER BY r.changed LIMIT ?"""
_DROP_OLD: Final = "DELETE FROM wa_event WHERE turn=? AND last <= ?"
_GONE: Final = """UPDATE wa_recorded SET gone=CASE WHEN gone > ? THEN gone ELSE ? END, changed=NULL
                  WHERE turn=? AND changed < ? RETURNING turn"""
_OF_THREAD: Final = """SELECT t.id, (SELECT last FROM wa_event WHERE turn=t.id ORDER BY first DESC LIMIT 1), r.changed
                       FROM wa_turn t JOIN wa_recorded r ON r.turn=t.id WHERE t.thread=? AND r.changed IS NOT NULL
                       ORDER BY t.id DESC"""
_REMOVE: Final = ("DELETE FROM wa_event WHERE turn IN ({})", "DELETE FROM wa_recorded WHERE turn IN ({})")

END: Final = 1 << 62
"""A number that is greater than that of any event."""

_TEXTS: Final = ("text_delta", "text_replaced", "step_ended", "turn_ended")
_ANY_TIME: Final = 253_402_300_800.0  # seconds since 1970, after the last one of year 9999
_ROWS_AT_ONCE: Final = 4
_LINES_IN_A_ROW: Final = 64
_CHARACTERS_IN_A_ROW: Final = 16_384  # limits how much one read loads


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn whose events are recorded.

    Attributes:
        turn: Its id.
        thread: The key of its thread.
        key: The idempotency key that it was begun with, or None.
        asked: A digest of the request with that key.
    """

    turn: str
    thread: str
    key: str | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """The result of one read of the log, at one moment.

    Attributes:
        thread: The key of the turn's thread.
        workspace: The turn's workspace.
        status: The status of the turn.
        gone: The number of the last deleted event; None if the turn is not recorded.
        last: The number of the turn's last event, even if it was deleted.
        events: The numbers and lines of the next events; `TurnLog.event` parses a line.
    """

    thread: str
    workspace: str
    status: TurnStatus
    gone: int | None
    last: int
    events: Sequence[tuple[int, str]]


class _StoredLook(Row):
    thread: str
    workspace: str
    status: TurnStatus
    gone: Annotated[int, Field(ge=0)] | None
    last: Annotated[int, Field(ge=1)] | None


class _StoredEvents(Row):
    first: Annotated[int, Field(ge=1)]
    last: Annotated[int, Field(ge=1)]
    lines: str


class TurnLog:
    """The events of recorded turns, in a database that was opened with the schemas `EVENTS` and `TURNS`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    # --- write --------------------------------------------------------------------------------------------------------

    def touch(self, transaction: Transaction, turn: RecordedTurn) -> None:
        """Start to record a turn, if it is not recorded yet. The age of its events counts from now."""
        now = self._clock.now().timestamp()
        transaction.execute(_TOUCH, (turn.turn, turn.thread, turn.key, turn.asked, now))

    @staticmethod
    def append(transaction: Transaction, turn: str, events: Sequence[TurnEvent], *, again: bool = False) -> None:
        """Write events. The caller must have verified the lease of the turn's thread in the same transaction.

        Args:
            transaction: The transaction to write in.
            turn: The turn's id.
            events: Events with consecutive numbers.
            again: Whether some of them may be stored already. If the server is lost during a commit, it is not known
                whether the commit happened.
        """
        if again:
            [(*_, last)] = transaction.execute(_LOOK, (turn,))
            events = [event for event in events if event.seq > (last or 0)]
        rows: list[tuple[int, list[str]]] = []
        room = 0
        for event in events:
            line = event.model_dump_json()
            if not rows or len(rows[-1][1]) == _LINES_IN_A_ROW or len(line) > room:
                rows.append((event.seq, []))
                room = _CHARACTERS_IN_A_ROW
            rows[-1][1].append(line)
            room -= len(line)
        for first, lines in rows:
            transaction.execute(_APPEND, (turn, first, first + len(lines) - 1, "\n".join(lines)))

    @staticmethod
    def free_key(transaction: Transaction, turn: str) -> None:
        """Let another turn begin with the key of a turn, in a transaction."""
        transaction.execute(_FREE, (turn,))

    @staticmethod
    def remove(transaction: Transaction, marks: str, turns: Sequence[str]) -> None:
        """Delete the events and keys of turns; `marks` has a question mark for each turn."""
        for statement in _REMOVE:
            transaction.execute(statement.format(marks), turns)

    @staticmethod
    def keep_last(transaction: Transaction, thread: str, *, keep: int | None, before: float | None) -> int:
        """Delete the events of all turns of a thread but its last ones. Returns of how many turns.

        The keys of these turns and the numbers of their next events are kept.

        Args:
            transaction: The transaction. It holds the lease of the thread, and no turn of it is open.
            thread: The thread's key.
            keep: Of how many of the newest turns to keep them; None sets no count.
            before: Delete those of turns that were recorded last before this time; None sets no time.
        """
        found = transaction.execute(_OF_THREAD, (thread,))
        gone = [
            (turn, last)
            for number, (turn, last, changed) in enumerate(found)
            if (keep is not None and number >= keep) or (before is not None and changed < before)
        ]
        for turn, last in gone:
            transaction.execute(_GONE, (last or 0, last or 0, turn, _ANY_TIME))
            transaction.execute(_DROP_OLD, (turn, last or 0))
        return len(gone)

    async def prune(self, age: float, *, most: int) -> int:
        """Delete the events of up to `most` turns that have not changed for `age` seconds. Returns how many turns.

        The keys of these turns and the numbers of their next events are kept.
        """
        before = (self._clock.now() - timedelta(seconds=age)).timestamp()

        def work(transaction: Transaction) -> int:
            found = transaction.execute(_OLD, (before, before, most))
            for turn, last in found:
                # If the turn was resumed in the meantime, all its events stay.
                if transaction.execute(_GONE, (last or 0, last or 0, turn, before)) and last is not None:
                    transaction.execute(_DROP_OLD, (turn, last))
            return len(found)

        return await self._database.transact(work)

    # --- find and read ------------------------------------------------------------------------------------------------

    async def find(self, thread: str, key: str) -> RecordedTurn | None:
        """The turn that was begun on a thread with a key, or None."""
        rows = await self._database.read(lambda tx: tx.execute(_FIND, (thread, key)))
        if not rows:
            return None
        return checked_row(RecordedTurn, rows[0], what=f"a key of thread {thread!r}", database=self._database.name)

    async def key(self, turn: str) -> str | None:
        """The key that a turn was begun with; None without one."""
        rows = await self._database.read(lambda tx: tx.execute(_KEY, (turn,)))
        return rows[0][0] if rows else None

    async def recorded(self, turns: Sequence[str]) -> frozenset[str]:
        """Which of these turns are recorded."""
        return frozenset(turn for (turn,) in await self._database.find(_RECORDED, turns))

    async def last(self, turn: str) -> int | None:
        """The number of a turn's last event, even if it was deleted; None if the turn is not recorded."""
        page = self._page(turn, await self._database.read(lambda tx: tx.execute(_LOOK, (turn,))))
        return None if page is None or page.gone is None else page.last

    async def has_open_text(self, turn: str) -> bool:
        """Whether the turn's events end with streamed text that was neither completed nor withdrawn."""

        def work(transaction: Transaction) -> bool:
            before = END
            while rows := transaction.execute(_BACK, (turn, before)):
                [(before, lines)] = rows
                for line in reversed(lines.split("\n")):
                    event = json.loads(line)
                    kind = event.get("type")
                    if kind in _TEXTS and event.get("interim", True):
                        return bool(kind == "text_delta")
            return False

        try:
            return await self._database.read(work)
        except (ValueError, AttributeError):
            pass
        raise self._invalid(f"the events of the turn {turn!r} have")

    async def page(self, turn: str, after: int) -> EventPage | None:
        """Read a page of the events after the number `after`; None if the turn does not exist.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        after = min(after, END)  # the database cannot store larger numbers

        def work(transaction: Transaction) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            look = transaction.execute(_LOOK, (turn,))
            if not look or look[0][3] is None:
                return look, []
            return look, transaction.execute(_ROWS, (turn, turn, after + 1, _ROWS_AT_ONCE))

        look, rows = await self._database.read(work)
        return self._page(turn, look, rows, after)

    def event(self, turn: str, seq: int, line: str) -> TurnEvent | None:
        """Parse a line. Returns None for a kind of event that this version does not know.

        Raises:
            StorageInvalid: The line was changed by another program.
        """
        try:
            event = parse_event(line)
            if event is None or (event.seq, event.turn_id) == (seq, turn):
                return event
        except ValidationError:
            pass
        raise self._invalid(f"the event {seq} of the turn {turn!r} has")

    def _page(
        self, turn: str, look: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]] = (), after: int = 0
    ) -> EventPage | None:
        if not look:
            return None
        found = read_row(_StoredLook, look[0], what=f"the turn {turn!r}", database=self._database.name)
        found["last"] = max(found["gone"] or 0, found["last"] or 0)
        events = [event for row in rows for event in self._lines(turn, row) if event[0] > after]
        return EventPage(events=events, **found)

    def _lines(self, turn: str, row: Sequence[Any]) -> Sequence[tuple[int, str]]:
        found = read_row(_StoredEvents, row, what=f"the events of the turn {turn!r}", database=self._database.name)
        lines = found["lines"].split("\n")
        if len(lines) != found["last"] - found["first"] + 1:
            raise self._invalid(f"the events of the turn {turn!r} have")
        return list(enumerate(lines, found["first"]))

    def _invalid(self, what: str) -> StorageInvalid:
        return StorageInvalid(
            f"{what} changed since the turn ran (in the database {self._database.name!r})",
            remedy="restore the database from a copy, or continue with another turn",
        )
