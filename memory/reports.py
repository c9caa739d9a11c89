"""Work in the background and what its conversation is told: a report for each end, pause and failure of it (T17).

A report is a row in the inbox of the conversation, written in the transaction that ends or pauses the work's turn. Its
id comes from that turn, so a repeated end writes none. `wa_turn.reports` says whom a turn reports to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from ..core import Scope, digest
from ..storage import Database, Transaction
from .inbox import COLUMNS, Inbox, InboxRow

if TYPE_CHECKING:
    from .turns import TurnRecord

ReportMode = Literal["turn", "next", "event"]
"""What a report does where no turn runs: it begins one, waits for the next one, or is an event alone."""

_BETWEEN: Final = "~bg-"
TASK_ID_LENGTH: Final = 8
TASK_THREADS: Final = f"%{_BETWEEN}{'_' * TASK_ID_LENGTH}"
"""A pattern of SQL for the keys of the threads of background tasks."""
_OF_TASK: Final = re.compile(f"(?:{_BETWEEN}[0-9a-f]{{{TASK_ID_LENGTH}}})+$")

_LONGEST: Final = 180  # characters of a thread's id that are in the ids of its work; an id has 200 at most
_SPENT: Final = ("calls", "tokens", "cost")
_OF: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE thread >= ? AND thread < ? AND kind='queue' ORDER BY at, id"
_BEGINNING: Final = f"""SELECT {COLUMNS} FROM wa_inbox
                        WHERE workspace=? AND COALESCE(account, '')=? AND turn IS NULL AND kind='queue'
                          AND code IS NULL"""
_RUNNING: Final = """SELECT reports FROM wa_turn WHERE workspace=? AND COALESCE(account, '')=?
                     AND reports IS NOT NULL AND status IN ('running', 'stopped')"""
_TOLD: Final = """SELECT id, status, changed, reports FROM wa_turn
                 WHERE workspace=? AND reports IS NOT NULL AND status NOT IN ('running', 'stopped')
                   AND (CAST(? AS TEXT) IS NULL OR account=?)
                 ORDER BY changed DESC, id DESC LIMIT ?"""
_REPORTS: Final = f"SELECT {COLUMNS} FROM wa_inbox WHERE thread=? AND kind='report' ORDER BY at DESC, id LIMIT 1000"
_DROP: Final = "DELETE FROM wa_inbox WHERE id=? AND turn IS NULL RETURNING id"
_DROP_UNREAD: Final = "DELETE FROM wa_inbox WHERE thread=? AND turn IS NULL"
_TELL_NOBODY: Final = "UPDATE wa_turn SET reports=NULL WHERE thread=?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTo:
    """Whom a turn in the background reports to, and what it can use.

    Attributes:
        key: The key of the conversation's thread; empty if the turn reports to nobody, but has limits of a chain.
        name: The id of that thread.
        channel: Its channel.
        task: The id of the background task.
        of: What was dispatched: a worker, a shape, a skill, or `conversation`.
        mode: What its reports do.
        chain: How many reports in a row have begun the turns that led to a turn that its report begins.
        last: Whether the chain ends here, so that its report begins no turn.
        on_behalf_of: The member that the conversation runs for.
        tiers: The tiers that a turn begun by the report resolves; None is all stored ones.
        guard: Whether that turn is guarded; None leaves it to the settings.
        limits: What the turn can use: calls, tokens, cost, and calls that models choose (`chosen`).
    """

    key: str = ""
    name: str = ""
    channel: str | None = None
    task: str = ""
    of: str = ""
    mode: ReportMode = "turn"
    chain: int = 0
    last: bool = False
    on_behalf_of: str = ""
    tiers: Sequence[str] | None = None
    guard: bool | None = None
    limits: Mapping[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """It as JSON, without what has its default."""
        default = asdict(ReportTo())
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> ReportTo | None:
        """Read what `to_json` returned."""
        return None if kept is None else cls(**kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a turn reports besides its status.

    Attributes:
        text: Its result, without anything of its roles.
        marks: The marks of that text.
        pauses: What it waits for: the ids of its pauses, with the functions that they are about.
        spent: What it used.
    """

    text: str = ""
    marks: Collection[str] = ()
    pauses: Mapping[str, str] | None = None
    spent: Any = None


@dataclass(frozen=True, slots=True)
class Told:
    """That a turn in the background ended, failed, or waits.

    Attributes:
        turn: Its id.
        status: Its status.
        changed: When its status was written, in seconds since 1970.
        to: Whom it told.
    """

    turn: str
    status: str
    changed: float
    to: ReportTo

    @property
    def id(self) -> str:
        """The same for the same report, and another one if the turn reports again."""
        return digest([self.turn, self.status, self.changed], length=12)


def background_thread(thread: str, task: str) -> str:
    """The id of the thread of a background task, from that of its conversation."""
    base = thread if len(thread) <= _LONGEST else f"{thread[: _LONGEST - 20]}~{digest(thread, length=16)}"
    return f"{base}{_BETWEEN}{task}"


def conversation_of(thread: str) -> str:
    """The id of the conversation whose background task has this thread, else the id itself.

    Where tasks have tasks it is that of the first one. Of an id that was too long to be a part of that of the task,
    only the beginning is known.
    """
    return thread[: found.start()] if (found := _OF_TASK.search(thread)) else thread


def mark_of_worker(of: str) -> str:
    """The mark of a text that a worker in the background wrote."""
    return f"worker:{of}"


def is_report(author: str) -> bool:
    """Whether a message with this author is a report of work in the background."""
    return author.startswith(mark_of_worker(""))


def report_of(record: TurnRecord, status: str, code: str | None, now: datetime, said: Said) -> InboxRow | None:
    """The report of a turn that ends or waits; None if it tells nobody of this.

    Args:
        record: The turn.
        status: Its new status.
        code: The code of its error, if it failed.
        now: The time.
        said: What it reports.
    """
    to = ReportTo.read(record.reports)
    if to is None or not to.key or status in ("running", "stopped"):
        return None
    return report_row(to, record, status, code, now, said, of=[record.id, status, sorted(said.pauses or ())])


def report_row(
    to: ReportTo, about: TurnRecord | InboxRow, status: str, code: str | None, now: datetime, said: Said, *, of: object
) -> InboxRow:
    """A report.

    Args:
        to: Whom it tells.
        about: The turn of the task, or the message that would have begun it.
        status: How the task stands.
        code: The code of its error, if it failed.
        now: The time.
        said: What it reports.
        of: What its id is made of.
    """
    spent = {name: getattr(said.spent, name) for name in _SPENT} if said.spent is not None else {}
    mode: ReportMode = "next" if to.mode == "turn" and (to.last or status == "cancelled") else to.mode
    start = {
        "start": {"message": _text(to, status, code, said)},
        "name": None,
        "tiers": to.tiers,
        "on_behalf_of": to.on_behalf_of,
        "sender": mark_of_worker(to.of),
        "marks": sorted(said.marks) if status == "done" else [],
        "unattended": "pause",
        "guard": to.guard,
        "model": [],
        "origin": None,
        "report": mode,
        "task": to.task,
        "of": to.of,
        "last": to.last,
        "status": status,
        "spent": spent,
        "reports": ReportTo(chain=to.chain, limits=less(to.limits, spent)).to_json(),
    }
    scope = replace(about.scope, thread=to.name, channel=to.channel)
    return InboxRow(
        id=f"report-{digest(of, length=24)}", thread=to.key, scope=scope, kind="report", start=start, at=now
    )


def _text(to: ReportTo, status: str, code: str | None, said: Said) -> str:
    who = f"The background task {to.task} ({to.of})"
    match status:
        case "done":
            return f"{who} is done. Its result:\n{said.text}"
        case "paused":
            waits = ", ".join(sorted({*(said.pauses or {}).values()}))
            return f"{who} waits for a person: {waits}."
        case "failed":
            return f"{who} failed ({code})."
        case _:
            return f"{who} was {status}."


def less(limits: Mapping[str, float] | None, spent: Mapping[str, float]) -> dict[str, float] | None:
    """What is left of limits, and None without any. Calls that models choose count as calls."""
    if limits is None:
        return None
    return {name: max(0, most - spent.get("calls" if name == "chosen" else name, 0)) for name, most in limits.items()}


class BackgroundTasks:
    """The background tasks of all conversations: the messages that begin them, and their turns.

    Args:
        database: A database that was opened with the schema `TURNS`.
        inbox: Its inboxes.
    """

    def __init__(self, database: Database, inbox: Inbox) -> None:
        self._database, self._inbox = database, inbox

    async def of(self, scope: Scope) -> tuple[InboxRow, ...]:
        """The messages that begin the tasks of a conversation, oldest first."""
        return await self._database.read(lambda tx: self._of(tx, scope))

    def _of(self, transaction: Transaction, scope: Scope) -> tuple[InboxRow, ...]:
        below = background_thread(scope.thread or "", "")
        low = _key(scope, below)
        rows = self._inbox.read(transaction.execute(_OF, (low, f"{low[:-1]}{chr(ord(low[-1]) + 1)}")))
        own = _key(scope, scope.thread or "")
        return tuple(row for row in rows if row.start.get("reports", {}).get("key") == own)

    def running(self, transaction: Transaction, scope: Scope) -> tuple[int, int]:
        """How many tasks of a conversation run or are about to, and how many of its account. What waits does not count.

        A task that the account dispatches at the same time, on any thread, waits for the end of this transaction.
        """
        own, whose = _key(scope, scope.thread or ""), (scope.workspace, scope.account or "")
        transaction.lock("background of {}/{}".format(*whose))
        unread = self._inbox.read(transaction.execute(_BEGINNING, whose))
        found = [row.start.get("reports") or {} for row in unread]
        found += [json.loads(kept) for (kept,) in transaction.execute(_RUNNING, whose)]
        keys = [each["key"] for each in found if "key" in each]
        return keys.count(own), len(keys)

    async def silence(self, scope: Scope) -> tuple[Scope, ...]:
        """Let the tasks of a conversation begin no more, and tell nobody; returns their threads."""
        return await self._database.transact(lambda tx: self.silenced(tx, scope))

    def silenced(self, transaction: Transaction, scope: Scope) -> tuple[Scope, ...]:
        """The same, in a transaction."""
        rows = self._of(transaction, scope)
        for row in rows:
            transaction.execute(_DROP_UNREAD, (row.thread,))
            transaction.execute(_TELL_NOBODY, (row.thread,))
        return tuple(row.scope for row in rows)

    async def report(self, task: Scope, conversation: str) -> InboxRow | None:
        """The newest report of the task with this thread to a conversation, whose thread has this key."""
        rows = await self._database.read(lambda tx: tx.execute(_REPORTS, (conversation,)))
        own = (task.thread or "").rpartition(_BETWEEN)[2]
        return next((row for row in self._inbox.read(rows) if row.start.get("task") == own), None)

    async def told(self, workspace: str, account: str | None, *, limit: int) -> tuple[Told, ...]:
        """The newest reports of a workspace, oldest first.

        Args:
            workspace: The workspace.
            account: Whose work it is; None is that of all accounts.
            limit: The most turns that are looked at; some of those can report to nobody.
        """
        rows = await self._database.read(lambda tx: tx.execute(_TOLD, (workspace, account, account, limit)))
        found = [Told(id, status, at, ReportTo(**json.loads(to))) for id, status, at, to in reversed(rows)]
        return tuple(each for each in found if each.to.key)

    async def drop(self, row: InboxRow, now: datetime) -> bool:
        """End a task that has not begun, and report that; False if it has begun."""

        def work(transaction: Transaction) -> bool:
            if not transaction.execute(_DROP, (row.id,)):
                return False
            to = ReportTo.read(row.start["reports"])
            assert to is not None, "it begins a background task"
            if to.mode != "event":
                Inbox.add(transaction, report_row(to, row, "cancelled", None, now, Said(), of=row.id))
            return True

        return await self._database.transact(work)


def _key(scope: Scope, thread: str) -> str:
    """The key of a thread of the same workspace; as `turns.thread_key`, which is above this module."""
    return f"{quote(scope.workspace, safe='')}/{quote(thread, safe='')}"


__all__ = [
    "TASK_ID_LENGTH",
    "TASK_THREADS",
    "BackgroundTasks",
    "ReportMode",
    "ReportTo",
    "Said",
    "Told",
    "background_thread",
    "conversation_of",
    "is_report",
    "less",
    "mark_of_worker",
    "report_of",
    "report_row",
]
