"""The event log: what recorded turns told, in the agent's database, and the keys that they were begun with (T10).

One row holds some events that came together, as lines of JSON. Numbers go on over all runs at a turn, in whatever
process, so whoever knows the last number that it has seen goes on behind it. Who may write is said by the lease of the
turn's thread; what is written is handed out only after it is here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ...core import Clock, SystemClock
from ...core.errors import StorageInvalid
from ...storage import Database, Schema, Transaction, check_row
from .._stored import TurnStatus
from ._stored import StoredEvents, StoredLook, StoredRecorded

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
# `gone` is the last event that is kept no more; `changed` is None where nothing of a turn is there to go.
_COLUMNS: Final = ("turn", "thread", "key", "asked", "gone", "changed")
_BEGIN: Final = f"INSERT INTO wa_recorded({', '.join(_COLUMNS)}) VALUES(?, ?, ?, ?, 0, ?)"
_GO_ON: Final = """INSERT INTO wa_recorded(turn, thread, key, asked, gone, changed) VALUES(?, ?, NULL, NULL, 0, ?)
                   ON CONFLICT(turn) DO UPDATE SET changed=excluded.changed"""
_CHANGED: Final = "UPDATE wa_recorded SET changed=? WHERE turn=?"
_APPEND: Final = "INSERT INTO wa_event(turn, first, last, lines) VALUES(?, ?, ?, ?)"
_KEYED: Final = f"SELECT {', '.join(_COLUMNS)} FROM wa_recorded WHERE thread=? AND key=?"
_RECORDED: Final = "SELECT turn FROM wa_recorded WHERE turn IN ({})"
_LAST: Final = """SELECT gone, (SELECT last FROM wa_event WHERE turn=r.turn ORDER BY first DESC LIMIT 1)
                  FROM wa_recorded r WHERE turn=?"""
_LOOK: Final = """SELECT t.thread, t.workspace, t.status, r.gone,
                    (SELECT last FROM wa_event WHERE turn=t.id ORDER BY first DESC LIMIT 1)
                  FROM wa_turn t LEFT JOIN wa_recorded r ON r.turn=t.id WHERE t.id=?"""
_LOOKED: Final = ("thread", "workspace", "status", "gone", "last")
# From the row on that has the event that is next, if it does not begin with it.
_ROWS: Final = """SELECT first, last, lines FROM wa_event
                  WHERE turn=? AND first >= COALESCE((SELECT MAX(first) FROM wa_event WHERE turn=? AND first <= ?), 0)
                  ORDER BY first LIMIT ?"""
_OLD: Final = """SELECT r.turn, (SELECT last FROM wa_event WHERE turn=r.turn ORDER BY first DESC LIMIT 1)
                 FROM wa_recorded r JOIN wa_turn t ON t.id=r.turn
                 WHERE r.changed < ? AND t.changed < ? AND t.status<>'running'
                 ORDER BY r.changed LIMIT ?"""
_DROP_OLD: Final = "DELETE FROM wa_event WHERE turn=? AND last <= ?"
_GONE: Final = """UPDATE wa_recorded SET gone=CASE WHEN gone > ? THEN gone ELSE ? END, changed=NULL
                  WHERE turn=? AND changed < ? RETURNING turn"""
_DROP: Final = "DELETE FROM wa_event WHERE turn IN ({})"
_DROP_RECORDED: Final = "DELETE FROM wa_recorded WHERE turn IN ({})"
_BACK: Final = "SELECT first, lines FROM wa_event WHERE turn=? AND first < ? ORDER BY first DESC LIMIT 1"
_END: Final = 1 << 62  # behind any event
_TEXTS: Final = ("text_delta", "text_replaced", "step_ended", "turn_ended")
_ROWS_AT_ONCE: Final = 4
_LINES_IN_A_ROW: Final = 64
_CHARACTERS_IN_A_ROW: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn whose events are kept.

    Attributes:
        turn: Its id.
        thread: The key of its thread.
        key: What it was begun with; None where it has none.
        asked: Stands for what was asked under the key.
    """

    turn: str
    thread: str
    key: str | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """Events that follow one another, as lines of JSON.

    Attributes:
        first: The number of the first one.
        lines: One for each event.
    """

    first: int
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """What one look into the log found, all of one moment.

    Attributes:
        thread: The key of the turn's thread.
        workspace: The turn's workspace.
        status: What has become of the turn.
        gone: The number of the last event that is kept no more; None where the turn is not recorded.
        last: The number of the turn's last event, kept or gone.
        events: What follows, as far as one look goes; empty where nothing does.
    """

    thread: str
    workspace: str
    status: TurnStatus
    gone: int | None
    last: int
    events: tuple[Lines, ...]


class EventLog:
    """The events of recorded turns, in a database that was opened with the schemas `EVENTS` and `TURNS`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def begin(self, transaction: Transaction, turn: RecordedTurn) -> None:
        """Record a turn from now on, in the transaction that begins it."""
        now = self._clock.now().timestamp()
        transaction.execute(_BEGIN, (turn.turn, turn.thread, turn.key, turn.asked, now))

    def go_on(self, transaction: Transaction, turn: RecordedTurn) -> None:
        """Record a turn from now on, whether or not it was before, in the transaction by which it goes on."""
        transaction.execute(_GO_ON, (turn.turn, turn.thread, self._clock.now().timestamp()))

    def changed(self, transaction: Transaction, turn: str) -> None:
        """Count the age of a turn's events from now."""
        transaction.execute(_CHANGED, (self._clock.now().timestamp(), turn))

    @staticmethod
    def append(transaction: Transaction, turn: str, events: Lines, *, again: bool = False) -> None:
        """Write down events; the caller has verified the lease of the turn's thread in the same transaction.

        Args:
            transaction: Where.
            turn: Whose they are.
            events: They.
            again: Whether some may be there: a server that is lost while it commits does not say whether it has.
        """
        first, new = events.first, events.lines
        if again:
            [(_, last)] = transaction.execute(_LAST, (turn,))
            there = max((last or 0) + 1 - first, 0)
            first, new = first + there, new[there:]
        for lines in _portions(new):
            transaction.execute(_APPEND, (turn, first, first + len(lines) - 1, "\n".join(lines)))
            first += len(lines)

    @staticmethod
    def drop(transaction: Transaction, marks: str, turns: Sequence[str]) -> None:
        """Delete what is recorded of turns, and their keys; `marks` is a question mark for each of them."""
        transaction.execute(_DROP.format(marks), turns)
        transaction.execute(_DROP_RECORDED.format(marks), turns)

    async def keyed(self, thread: str, key: str) -> RecordedTurn | None:
        """The turn that was begun on a thread with a key."""
        rows = await self._database.read(lambda tx: tx.execute(_KEYED, (thread, key)))
        if not rows:
            return None
        found: dict[str, Any] = dict(zip(_COLUMNS, rows[0], strict=True))
        check_row(StoredRecorded, found, what=f"a key of thread {thread!r}", database=self._database.name)
        return RecordedTurn(turn=found["turn"], thread=thread, key=key, asked=found["asked"])

    async def recorded(self, turns: Sequence[str]) -> frozenset[str]:
        """Which of these turns are recorded."""
        if not turns:
            return frozenset()
        statement = _RECORDED.format(", ".join("?" * len(turns)))
        rows = await self._database.read(lambda tx: tx.execute(statement, tuple(turns)))
        return frozenset(turn for (turn,) in rows)

    async def last(self, turn: str) -> int | None:
        """The number of a turn's last event, kept or gone; None where the turn is not recorded."""
        rows = await self._database.read(lambda tx: tx.execute(_LAST, (turn,)))
        if not rows:
            return None
        numbers = [number for number in rows[0] if number is not None]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise self._invalid(turn)
        return int(max(numbers, default=0))

    async def standing(self, turn: str) -> bool:
        """Whether a reader of all that a turn told sees text that nothing was said of any more: it was cut off."""

        def work(transaction: Transaction) -> bool:
            before = _END
            while rows := transaction.execute(_BACK, (turn, before)):
                [(before, lines)] = rows
                for line in reversed(lines.split("\n")):
                    event = json.loads(line)
                    kind = event.get("type")
                    if kind in _TEXTS and event.get("interim", True):
                        return bool(kind == "text_delta")
            return False

        with contextlib.suppress(ValueError, AttributeError):
            return await self._database.read(work)
        raise self._invalid(turn)

    async def page(self, turn: str, after: int) -> EventPage | None:
        """Look what stands behind the event `after`; None where there is no such turn.

        Raises:
            StorageInvalid: A row is not what was written.
        """
        after = min(after, _END)  # what a database has no number for

        def work(transaction: Transaction) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            look = transaction.execute(_LOOK, (turn,))
            if not look or look[0][3] is None:
                return look, []
            return look, transaction.execute(_ROWS, (turn, turn, after + 1, _ROWS_AT_ONCE))

        look, rows = await self._database.read(work)
        if not look:
            return None
        found: dict[str, Any] = dict(zip(_LOOKED, look[0], strict=True))
        check_row(StoredLook, found, what=f"the turn {turn!r}", database=self._database.name)
        found["last"] = max(found["gone"] or 0, found["last"] or 0)
        events = tuple(lines for row in rows if (lines := self._lines(turn, row, after)) is not None)
        return EventPage(events=events, **found)

    async def prune(self, age: float, *, most: int) -> int:
        """Delete the events of turns that have not changed for `age` seconds, of `most` turns; of how many they were.

        What is kept of a turn is its key, and which number its next event has.
        """
        before = (self._clock.now() - timedelta(seconds=age)).timestamp()

        def work(transaction: Transaction) -> int:
            found = transaction.execute(_OLD, (before, before, most))
            for turn, last in found:
                # A turn may go on meanwhile: then all of it stays.
                if transaction.execute(_GONE, (last or 0, last or 0, turn, before)) and last is not None:
                    transaction.execute(_DROP_OLD, (turn, last))
            return len(found)

        return await self._database.transact(work)

    def _lines(self, turn: str, row: tuple[Any, ...], after: int) -> Lines | None:
        """What a row has behind the event `after`; None where it has nothing."""
        found: dict[str, Any] = dict(zip(("first", "last", "lines"), row, strict=True))
        check_row(StoredEvents, found, what=f"the events of the turn {turn!r}", database=self._database.name)
        lines: list[str] = found["lines"].split("\n")
        if len(lines) != found["last"] - found["first"] + 1:
            raise self._invalid(turn)
        skipped = max(after + 1 - found["first"], 0)
        return Lines(found["first"] + skipped, lines[skipped:]) if skipped < len(lines) else None

    def _invalid(self, turn: str) -> StorageInvalid:
        return StorageInvalid(
            f"the events of the turn {turn!r} in {self._database.name!r} are not what was written",
            remedy="restore the database from a copy, or go on with another turn",
        )


def _portions(lines: Sequence[str]) -> list[list[str]]:
    """Lines by rows, none of which is too long to be read at once."""
    found: list[list[str]] = []
    room = 0
    for line in lines:
        if not found or len(found[-1]) == _LINES_IN_A_ROW or len(line) > room:
            found.append([])
            room = _CHARACTERS_IN_A_ROW
        found[-1].append(line)
        room -= len(line)
    return found


__all__ = ["EVENTS", "EventLog", "EventPage", "Lines", "RecordedTurn"]
