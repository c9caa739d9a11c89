"""The stored schedules of a workspace and their runs. `scheduling` decides what is due; here it is only written down.

A slot gets its run row in the transaction that marks it as handled. So two processes that look at the same time do not
both fire it, and a process that dies afterwards leaves a row that the next one takes up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from pydantic import Json

from ..core import Scope, canonical_json, utc_text
from ..core.errors import NameTaken, UnknownSchedule
from ..storage import Database, Row, Schema, Transaction, checked_row

RunStatus = Literal["due", "started", "done", "failed", "skipped", "paused", "cancelled"]
"""The status of a run. `due` has not started: it is new, or it waits for the run before it."""

OPEN_RUNS: Final[tuple[RunStatus, ...]] = ("due", "started", "paused")

SCHEDULES: Final = Schema(
    "schedules",
    (
        (
            """CREATE TABLE wa_schedule(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 body TEXT NOT NULL,
                 handled TEXT NOT NULL,
                 PRIMARY KEY(workspace, id))""",
            """CREATE TABLE wa_schedule_run(
                 workspace TEXT NOT NULL,
                 schedule TEXT NOT NULL,
                 slot TEXT NOT NULL,
                 status TEXT NOT NULL,
                 at TEXT NOT NULL,
                 turn TEXT,
                 note TEXT,
                 PRIMARY KEY(workspace, schedule, slot))""",
        ),
    ),
)

_ONE: Final = "SELECT id, body, handled FROM wa_schedule WHERE workspace=? AND id=?"
_ALL: Final = "SELECT id, body, handled FROM wa_schedule WHERE workspace=? ORDER BY id"
_COUNT: Final = "SELECT COUNT(*) FROM wa_schedule WHERE workspace=?"
_LIKE: Final = "SELECT id, body, handled FROM wa_schedule WHERE workspace=? AND body LIKE ? ESCAPE '!'"
_ADD: Final = "INSERT INTO wa_schedule(workspace, id, body, handled) VALUES(?, ?, ?, ?)"
_CHANGE: Final = "UPDATE wa_schedule SET body=?, handled=? WHERE workspace=? AND id=?"
_REMOVE: Final = "DELETE FROM wa_schedule WHERE workspace=? AND id=?"
_REMOVE_RUNS: Final = "DELETE FROM wa_schedule_run WHERE workspace=? AND schedule=?"
_RUN: Final = """INSERT INTO wa_schedule_run(workspace, schedule, slot, status, at, turn, note)
                 VALUES(?, ?, ?, ?, ?, NULL, ?) ON CONFLICT(workspace, schedule, slot) DO NOTHING"""
_CLAIM: Final = """UPDATE wa_schedule_run SET status=?, note=?
                   WHERE workspace=? AND schedule=? AND slot=? AND status='due' RETURNING slot"""
_SET: Final = """UPDATE wa_schedule_run SET status=?, turn=COALESCE(?, turn), note=?
                 WHERE workspace=? AND schedule=? AND slot=?"""
_RUNS: Final = """SELECT schedule, slot, status, at, turn, note FROM wa_schedule_run
                  WHERE workspace=? AND schedule=? ORDER BY slot DESC LIMIT ?"""
_OPEN: Final = f"""SELECT schedule, slot, status, at, turn, note FROM wa_schedule_run
                   WHERE workspace=? AND schedule=? AND status IN ({", ".join("?" * len(OPEN_RUNS))}) ORDER BY slot"""
_KEEP: Final = """DELETE FROM wa_schedule_run WHERE workspace=? AND schedule=?
                  AND status NOT IN ('due', 'started', 'paused')
                  AND slot < (SELECT MIN(slot) FROM (SELECT slot FROM wa_schedule_run
                              WHERE workspace=? AND schedule=? ORDER BY slot DESC LIMIT ?) AS newest)"""


class StoredSchedule(Row):
    """A schedule as it is stored.

    Attributes:
        id: Its id.
        body: The schedule as JSON.
        handled: The time up to which its slots are handled.
    """

    id: str
    body: Json[dict[str, Any]]
    handled: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """One slot of a schedule and its run.

    Attributes:
        schedule: The id of the schedule.
        slot: The id of the slot, its time in UTC.
        status: Its status.
        at: When it was taken up.
        turn: The turn that it started; None if it started none.
        note: Why it was skipped or failed.
    """

    schedule: str
    slot: str
    status: RunStatus
    at: datetime
    turn: str | None = None
    note: str | None = None


class ScheduleRows:
    """The schedules in a database that was opened with the schema `SCHEDULES`.

    Args:
        database: The database.

    Attributes:
        check: Refuses a new schedule of an account that has too many; it counts those of an account or the workspace.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.check: Callable[[Scope, Callable[[str | None], int]], None] | None = None

    async def add(self, workspace: str, schedule: str, body: Mapping[str, Any], at: datetime) -> None:
        """Store a new schedule. Its slots count from now on.

        Args:
            workspace: Its workspace.
            schedule: Its id.
            body: The schedule as JSON.
            at: The time now.

        Raises:
            NameTaken: The workspace has a schedule with this id.
            LimitReached: Its account, or the workspace, has too many.
        """
        scope = Scope(workspace=workspace, account=body.get("account"))

        def work(transaction: Transaction) -> bool:
            if transaction.hold(_ONE, (workspace, schedule)):
                return False
            transaction.execute(_ADD, (workspace, schedule, canonical_json(body), utc_text(at)))
            if self.check is not None:
                self.check(scope, partial(self._count, transaction, workspace))
            return True

        if not await self._database.transact(work):
            raise schedule_taken(schedule)

    def _count(self, transaction: Transaction, workspace: str, account: str | None) -> int:
        """How many schedules an account has, or with None the workspace and all its accounts."""
        if account is None:
            return int(transaction.execute(_COUNT, (workspace,))[0][0])
        named = re.sub("[!%_]", r"!\g<0>", f'"account":{canonical_json(account)}')
        there = map(self._schedule, transaction.execute(_LIKE, (workspace, f"%{named}%")))
        return sum(each.body.get("account") == account for each in there)

    async def list(self, workspace: str) -> tuple[StoredSchedule, ...]:
        """All schedules of a workspace, by id.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        rows = await self._database.read(lambda tx: tx.execute(_ALL, (workspace,)))
        return tuple(self._schedule(row) for row in rows)

    async def get(self, workspace: str, schedule: str) -> StoredSchedule:
        """One schedule.

        Raises:
            UnknownSchedule: There is no such schedule.
            StorageInvalid: Its row was changed by another program.
        """
        rows = await self._database.read(lambda tx: tx.execute(_ONE, (workspace, schedule)))
        if not rows:
            raise unknown_schedule(schedule)
        return self._schedule(rows[0])

    async def change(self, workspace: str, schedule: str, work: Callable[[StoredSchedule], Change]) -> Change:
        """Change a schedule and add runs, in one transaction that no other change of it can interleave with.

        Args:
            workspace: Its workspace.
            schedule: Its id.
            work: Decides what to write, from the schedule as it is stored. It can run again.

        Raises:
            UnknownSchedule: There is no such schedule.
            StorageInvalid: The row was changed by another program.
        """

        def write(transaction: Transaction) -> Change | None:
            rows = transaction.hold(_ONE, (workspace, schedule), alone=True)
            if not rows:
                return None
            stored = self._schedule(rows[0])
            change = work(stored)
            if not change.runs and (change.body, change.handled) == (stored.body, stored.handled):
                return change  # as in most looks for what is due
            given = (canonical_json(change.body), utc_text(change.handled), workspace, schedule)
            transaction.execute(_CHANGE, given)
            for run in change.runs:
                transaction.execute(_RUN, (workspace, schedule, run.slot, run.status, utc_text(run.at), run.note))
            return change

        change = await self._database.transact(write)
        if change is None:
            raise unknown_schedule(schedule)
        return change

    async def remove(self, workspace: str, schedule: str) -> None:
        """Remove a schedule and the history of its runs. Turns that it started stay.

        Raises:
            UnknownSchedule: There is no such schedule.
        """

        def work(transaction: Transaction) -> bool:
            found = transaction.hold(_ONE, (workspace, schedule), alone=True)
            transaction.execute(_REMOVE, (workspace, schedule))
            transaction.execute(_REMOVE_RUNS, (workspace, schedule))
            return bool(found)

        if not await self._database.transact(work):
            raise unknown_schedule(schedule)

    async def runs(self, workspace: str, schedule: str, limit: int) -> tuple[ScheduleRun, ...]:
        """The newest runs of a schedule, newest first."""
        rows = await self._database.read(lambda tx: tx.execute(_RUNS, (workspace, schedule, limit)))
        return tuple(self._run(row) for row in rows)

    async def open_runs(self, workspace: str, schedule: str) -> tuple[ScheduleRun, ...]:
        """The runs of a schedule that are not over, oldest first."""
        given = (workspace, schedule, *OPEN_RUNS)
        rows = await self._database.read(lambda tx: tx.execute(_OPEN, given))
        return tuple(self._run(row) for row in rows)

    async def claim(self, workspace: str, run: ScheduleRun, status: RunStatus, *, note: str | None = None) -> bool:
        """Give a run that is due its next status; False if another process has done so."""
        given = (status, note, workspace, run.schedule, run.slot)
        return bool(await self._database.transact(lambda tx: tx.execute(_CLAIM, given)))

    async def set_run(
        self, workspace: str, run: ScheduleRun, status: RunStatus, *, turn: str | None = None, note: str | None = None
    ) -> None:
        """Store the status of a run."""
        given = (status, turn, note, workspace, run.schedule, run.slot)
        await self._database.transact(lambda tx: tx.execute(_SET, given))

    async def prune(self, workspace: str, schedule: str, keep: int) -> None:
        """Remove runs that are over, except the newest.

        Args:
            workspace: The workspace.
            schedule: The schedule.
            keep: How many to keep.
        """
        given = (workspace, schedule, workspace, schedule, keep)
        await self._database.transact(lambda tx: tx.execute(_KEEP, given))

    def _schedule(self, row: Sequence[Any]) -> StoredSchedule:
        return checked_row(StoredSchedule, row, what=f"the schedule {row[0]!r}", database=self._database.name)

    def _run(self, row: Sequence[Any]) -> ScheduleRun:
        return checked_row(ScheduleRun, row, what=f"a run of the schedule {row[0]!r}", database=self._database.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is written of a schedule at once.

    Attributes:
        body: The schedule as JSON.
        handled: The time up to which its slots are handled.
        runs: New runs. A slot that has one already keeps it.
    """

    body: Mapping[str, Any]
    handled: datetime
    runs: tuple[ScheduleRun, ...] = ()


def schedule_taken(schedule: str) -> NameTaken:
    """The error about a new schedule whose id another one has."""
    return NameTaken(
        f"there is a schedule {schedule!r} already", remedy="give it another id, or remove the other one first"
    )


def unknown_schedule(schedule: str) -> UnknownSchedule:
    """The error about a schedule that does not exist."""
    return UnknownSchedule(f"there is no schedule {str(schedule)[:100]!r}", remedy="see the list of schedules")
