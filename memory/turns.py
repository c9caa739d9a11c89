"""The turns of all threads, one row each: their status, and whether their cancellation was requested.

The conversation log has what a turn said, the checkpoints its state, and the journal its calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from ..core import ROOT, Clock, Scope, SystemClock, Tier, canonical_json
from ..core.errors import GraphChanged, StorageInvalid
from ..core.events import TurnKind
from ..core.pauses import UnattendedMode
from ..storage import Database, Known, Lease, Schema, Transaction, read_row
from .conversation import OPEN, Handed, StoredTurn, TurnStatus, handed_of
from .inbox import INBOX_TABLES, Inbox, InboxRow
from .reports import TASK_THREADS, Said, report_of

_NAMES = tuple(StoredTurn.model_fields)
_COLUMNS = ", ".join(_NAMES)
_FIRST_COLUMNS = ", ".join(_NAMES[:-12])  # those of the first version of the table

TURNS = Schema(
    "turns",
    (
        (
            """CREATE TABLE wa_turn(
                 id TEXT PRIMARY KEY,
                 thread TEXT NOT NULL,
                 workspace TEXT NOT NULL,
                 name TEXT NOT NULL,
                 account TEXT,
                 channel TEXT,
                 kind TEXT NOT NULL,
                 author TEXT NOT NULL,
                 status TEXT NOT NULL,
                 asked TEXT NOT NULL,
                 role TEXT NOT NULL,
                 prompt TEXT,
                 code TEXT,
                 graph TEXT NOT NULL,
                 began DOUBLE PRECISION NOT NULL,
                 changed DOUBLE PRECISION NOT NULL,
                 cancel BIGINT NOT NULL DEFAULT 0)""",
            "CREATE INDEX wa_turn_thread ON wa_turn(thread, id)",
            "CREATE INDEX wa_turn_cancel ON wa_turn(id) WHERE cancel=1",
        ),
        ("ALTER TABLE wa_turn ADD COLUMN model TEXT",),
        ("ALTER TABLE wa_turn ADD COLUMN origin TEXT",),
        ("ALTER TABLE wa_turn ADD COLUMN unattended TEXT",),
        ("ALTER TABLE wa_turn ADD COLUMN example BIGINT",),
        ("ALTER TABLE wa_turn ADD COLUMN on_behalf_of TEXT",),
        ("ALTER TABLE wa_turn ADD COLUMN archived BIGINT",),
        (
            "ALTER TABLE wa_turn ADD COLUMN version TEXT",
            "ALTER TABLE wa_turn ADD COLUMN stale DOUBLE PRECISION",
            "CREATE INDEX wa_turn_stale ON wa_turn(workspace) WHERE stale IS NOT NULL",
        ),
        ("ALTER TABLE wa_turn ADD COLUMN needs TEXT",),
        (
            "ALTER TABLE wa_turn ADD COLUMN inbox BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE wa_turn ADD COLUMN reports TEXT",
            "ALTER TABLE wa_turn ADD COLUMN gentle BIGINT",
            *INBOX_TABLES,
        ),
        ("CREATE INDEX wa_turn_reports ON wa_turn(workspace, status) WHERE reports IS NOT NULL",),
        (
            "DROP INDEX wa_turn_reports",
            """CREATE INDEX wa_turn_reports ON wa_turn(workspace, COALESCE(account, ''), status)
               WHERE reports IS NOT NULL""",
            """CREATE INDEX wa_inbox_account ON wa_inbox(workspace, COALESCE(account, ''))
               WHERE turn IS NULL AND kind='queue'""",
            "CREATE INDEX wa_inbox_began ON wa_inbox(workspace) WHERE began=1",
        ),
        ("ALTER TABLE wa_turn ADD COLUMN handed TEXT",),
    ),
)
_INSERT = f"""INSERT INTO wa_turn({_COLUMNS}, inbox)
              VALUES({", ".join("?" * len(_NAMES))},
                     CASE WHEN EXISTS(SELECT 1 FROM wa_inbox WHERE thread=? AND turn IS NULL) THEN 1 ELSE 0 END)
              RETURNING inbox"""
_IS_OPEN = f"status IN ({', '.join(map(repr, OPEN))})"
# A turn that could be resumed becomes cancelled instead, if its cancellation was requested.
_UPDATE = """UPDATE wa_turn SET status=CASE WHEN cancel=1 AND ? IN ('paused', 'stopped', 'failed') THEN 'cancelled'
               ELSE ? END, code=?, changed=?, role=COALESCE(?, role), version=?, needs=?,
               stale=CASE WHEN ?='running' THEN NULL ELSE stale END WHERE id=?
             RETURNING status, inbox, gentle, reports"""
_NOTE_ROLE = "UPDATE wa_turn SET role=? WHERE id=?"
_SET_ORIGIN = "UPDATE wa_turn SET origin=? WHERE id=?"
# A thread is archived if its newest turn says so, so a new turn brings it back.
_ARCHIVE = "UPDATE wa_turn SET archived=? WHERE id=(SELECT MAX(id) FROM wa_turn WHERE thread=?) RETURNING id"
_HAND = "UPDATE wa_turn SET handed=? WHERE id=(SELECT MAX(id) FROM wa_turn WHERE thread=?) RETURNING id"
_LATEST = f"SELECT {_COLUMNS} FROM wa_turn WHERE thread=? ORDER BY id DESC LIMIT 1"
# Only the first columns: a database that is read without being migrated can have an earlier version.
_ONGOING = f"""SELECT {_FIRST_COLUMNS} FROM wa_turn
                WHERE id IN (SELECT MAX(id) FROM wa_turn GROUP BY thread)
                  AND {_IS_OPEN}
                ORDER BY workspace, name"""
# Reads in order of the primary key. Few turns run, and an index would cost every turn more than it saves here.
_RUNNING = f"SELECT {_COLUMNS} FROM wa_turn WHERE status='running' ORDER BY id DESC LIMIT ?"
_BY_IDS = f"SELECT {_COLUMNS} FROM wa_turn WHERE id IN ({{}})"
# One that was requested at once stays so.
_CANCEL = f"""UPDATE wa_turn
              SET cancel=1, gentle=CASE WHEN cancel=1 AND gentle IS NULL THEN NULL ELSE CAST(? AS BIGINT) END
              WHERE id=? AND {_IS_OPEN} RETURNING id"""
_NOTE_STALE = f"UPDATE wa_turn SET stale=? WHERE id=? AND stale IS NULL AND {_IS_OPEN} RETURNING id"
_STALE = f"""SELECT {_COLUMNS} FROM wa_turn WHERE workspace=? AND stale IS NOT NULL AND stale <= ? AND {_IS_OPEN}
             AND NOT (status='failed' AND code='{GraphChanged.code}') ORDER BY id LIMIT 100"""
_TO_CANCEL = "SELECT id, gentle FROM wa_turn WHERE cancel=1 AND status='running'"
# Keys of a workspace's threads begin with the workspace and a slash, so only the index over (thread, id) is read. `0`
# is the character after the slash.
_THREADS = f"""SELECT {_COLUMNS} FROM wa_turn
               WHERE id IN (SELECT MAX(id) FROM wa_turn WHERE thread >= ? AND thread < ? GROUP BY thread)
                 AND (CAST(? AS BIGINT)=1 OR thread NOT LIKE ?)
                 AND (CAST(? AS TEXT) IS NULL OR status=?)
                 AND (CAST(? AS TEXT) IS NULL OR channel=?)
                 AND (CAST(? AS TEXT) IS NULL OR EXISTS(
                   SELECT 1 FROM wa_turn own WHERE own.thread=wa_turn.thread AND own.account=?))
                 AND (CAST(? AS BIGINT) IS NULL OR COALESCE(archived, 0)=?)
                 AND (CAST(? AS DOUBLE PRECISION) IS NULL OR began < ? OR (began=? AND id < ?))
               ORDER BY began DESC, id DESC LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn as it is stored.

    Attributes:
        id: Its id; ids sort by creation time.
        thread: The key of its thread.
        scope: The ids it runs under.
        kind: What it was begun from: a message, a task, a skill or a schedule.
        author: Who began it.
        status: Its status. A `running` turn without an owner was interrupted.
        asked: The id of its message.
        role: What is stored about its role: the active tiers, those that reached a model, a keyed digest and the
            key's id.
        prompt: A digest of a skill's prompt.
        code: The code of its error, if it failed.
        graph: The graph it runs in.
        began: When it began.
        changed: When its status was last written.
        model: The names of its model and of the fallback models; empty means the agent's.
        origin: The call that began or resumed it, as JSON; None if the host's code did.
        unattended: What happens when a call requires approval; None asks a person, as turns of earlier versions do.
        example: Whether its model steps are kept as examples.
        archived: Whether its thread is archived, if it is the newest turn.
        on_behalf_of: The member that it runs for; `root` if it is a turn of no member.
        version: The newest version of the package that has begun or resumed it; None is one before 0.2.
        stale: When it was found that it can never resume; None if it was not. Such a turn is ended later.
        needs: The least version of the package that can resume it; None, as in turns of 0.1.0, is any.
        reports: The conversation that is told when it ends or waits, as JSON; None if none is.
        gentle: Whether its cancellation was requested for its next safe point.
        handed: Who speaks in the thread after it, if it is the newest turn; None is the World Agent.
        inbox: Whether a message has come into the inbox of its thread. It is known only from `TurnRegister.end`.
    """

    id: str
    thread: str
    scope: Scope
    kind: TurnKind
    author: str
    status: TurnStatus
    asked: str
    role: Mapping[str, Any]
    prompt: str | None = None
    code: str | None = None
    graph: str
    began: datetime
    changed: datetime
    model: tuple[str, ...] = ()
    origin: Mapping[str, Any] | None = None
    unattended: UnattendedMode | None = None
    example: bool = False
    archived: bool = False
    on_behalf_of: str = ROOT
    version: str | None = None
    stale: datetime | None = None
    needs: str | None = None
    reports: Mapping[str, Any] | None = None
    gentle: bool = False
    handed: Handed | None = None
    inbox: bool = False

    @property
    def spoken_for(self) -> str:
        """The member that it runs for on its own; `root` if a member only speaks in it for a person."""
        return ROOT if self.handed is not None and self.handed.member == self.on_behalf_of else self.on_behalf_of

    @property
    def given_up(self) -> bool:
        """Whether it was ended because it could not resume, so that it never can."""
        return self.status == "failed" and self.stale is not None and self.code == GraphChanged.code

    @property
    def sent_tiers(self) -> tuple[Tier, ...]:
        """The tiers whose roles reached a model. Turns of versions before 0.2 have all that were active."""
        return tuple(map(Tier, self.role["sent"] if "sent" in self.role else self.role.get("tiers", ())))


class TurnRegister:
    """The turns in a database that was opened with the schema `TURNS`.

    Attributes:
        ended: Is called when it is written that a turn has ended without its result.
        reported: Is called when the end or the pause of a turn in the background is written, with its report.
    """

    ended: Callable[[], object] = staticmethod(lambda: None)
    reported: Callable[[TurnRecord, InboxRow], object] = staticmethod(lambda record, report: None)

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def begin(
        self,
        record: TurnRecord,
        *,
        lease: Lease,
        also: Callable[[Transaction], None] | None = None,
        unread: Callable[[], object] = lambda: None,
    ) -> None:
        """Enqueue a new turn for the next commit of its thread's lease.

        Args:
            record: The turn.
            lease: The lease of its thread.
            also: Writes more in the same transaction.
            unread: Called by that transaction if the inbox of the thread has unread messages then.

        Raises:
            LeaseLost: The lease was released.
            HostError: An earlier transaction of this lease failed.
        """

        def work(transaction: Transaction) -> None:
            if also is not None:
                also(transaction)
            [(inbox,)] = transaction.execute(_INSERT, (*_row(record), record.thread))
            if inbox:
                unread()

        lease.enqueue(work)
        self._known(record, lease)

    async def end(
        self,
        record: TurnRecord,
        status: TurnStatus,
        *,
        code: str | None = None,
        role: Mapping[str, Any] | None = None,
        lease: Lease,
        also: Callable[[Transaction, str], object] | None = None,
        each: Callable[[Transaction, bool], None] | None = None,
        final: bool = False,
        said: Said | None = None,
    ) -> TurnRecord:
        """Write the status of a turn. If its cancellation was requested, it becomes `cancelled` instead of open.

        A turn in the background reports its end or pause to its conversation, in the same transaction.

        Args:
            record: The turn.
            status: Its new status.
            code: The code of its error, if it failed.
            role: What is stored about its role from now on; None leaves that as it is.
            lease: The lease of its thread.
            also: Called in the same transaction if the turn is over, with the key of the thread.
            each: Called in the same transaction in every case, with whether the turn can be resumed.
            final: Whether to ignore a cancellation of the caller during the commit.
            said: What a turn in the background reports besides its status.

        Raises:
            LeaseLost: Another owner took over the thread.
        """
        now, noted = self._clock.now(), None if role is None else canonical_json(role)

        given = (status, status, code, now.timestamp(), noted, record.version, record.needs, status, record.id)

        report: InboxRow | None = None

        def work(transaction: Transaction) -> tuple[TurnStatus, int, int | None]:
            nonlocal report
            report = None
            rows = transaction.execute(_UPDATE, given)
            if not rows:  # the begin of the turn could not be written, so it has no row
                return status, 0, None
            written: TurnStatus = rows[0][0]
            if record.reports is not None and rows[0][3] is not None:  # else its conversation is gone
                report = report_of(record, written, code, now, said or Said())
                if report is not None and report.start["report"] != "event":
                    Inbox.add(transaction, report)
            if also is not None and written not in OPEN:
                also(transaction, record.thread)
            if each is not None:
                each(transaction, written in OPEN)
            return written, rows[0][1], rows[0][2]

        written, inbox, gentle = await lease.commit(work, final=final)
        kept = record.role if role is None else role
        stale = None if status == "running" else record.stale
        more: dict[str, Any] = {"stale": stale, "inbox": bool(inbox), "gentle": bool(gentle)}
        made = self._known(replace(record, status=written, code=code, changed=now, role=kept, **more), lease)
        if report is not None:
            self.reported(made, report)
        if written in ("cancelled", "abandoned"):
            self.ended()
        return made

    @staticmethod
    def note_role(transaction: Transaction, turn_id: str, role: Mapping[str, Any]) -> None:
        """Store something else about the role of a turn, in a transaction."""
        transaction.execute(_NOTE_ROLE, (canonical_json(role), turn_id))

    def set_origin(self, record: TurnRecord, origin: Mapping[str, Any], *, lease: Lease) -> TurnRecord:
        """Enqueue the call that a turn is resumed from for the next commit of its thread's lease.

        Raises:
            LeaseLost: The lease was released.
            HostError: An earlier transaction of this lease failed.
        """

        def work(transaction: Transaction) -> None:
            transaction.execute(_SET_ORIGIN, (canonical_json(origin), record.id))

        lease.enqueue(work)
        return self._known(replace(record, origin=origin), lease)

    @staticmethod
    def _known(record: TurnRecord, lease: Lease) -> TurnRecord:
        if TurnRecord in lease.known:
            lease.known[TurnRecord] = record
        return record

    async def latest(self, thread: str, *, lease: Lease | None = None) -> TurnRecord | None:
        """The newest turn of a thread; the thread's `lease` may have it in memory."""
        if lease is not None and TurnRecord in lease.known:
            known: TurnRecord | None = lease.known[TurnRecord]
            return known
        return await self._database.read(lambda tx: self._latest(tx, thread))

    def read(self, transaction: Transaction, thread: str) -> Known:
        """A thread's newest turn for `Lease.known`. An unreadable one is left out, so that only its readers fail."""
        with suppress(StorageInvalid):
            return {TurnRecord: self._latest(transaction, thread)}
        return {}

    def _latest(self, transaction: Transaction, thread: str) -> TurnRecord | None:
        rows = transaction.execute(_LATEST, (thread,))
        return _record(rows[0], self._database.name) if rows else None

    async def get(self, turn_id: str) -> TurnRecord | None:
        """The turn with an id, or None."""
        rows = await self._database.find(_BY_IDS, [turn_id])
        return _record(rows[0], self._database.name) if rows else None

    async def threads(
        self,
        workspace: str,
        *,
        limit: int = 100,
        status: TurnStatus | None = None,
        channel: str | None = None,
        account: str | None = None,
        archived: bool | None = None,
        prefix: str = "",
        before: tuple[datetime, str] | None = None,
    ) -> tuple[TurnRecord, ...]:
        """The newest turn of each thread of a workspace, newest first.

        Threads of background tasks are among them only with a `status`, or if `archived` is None.

        Args:
            workspace: The workspace.
            limit: The most turns to return.
            status: Only turns with this status.
            channel: Only turns of this channel.
            account: Only turns of threads on which a turn ran for this account.
            archived: Only turns of threads that are archived, or that are not; None is both.
            prefix: Only turns of threads whose ids begin so.
            before: Only turns that began before this time, or at this time with a lower id.
        """
        began, turn = (None, "") if before is None else (before[0].timestamp(), before[1])
        hidden = None if archived is None else int(archived)
        tasks = int(status is not None or archived is None), TASK_THREADS
        kept = (*tasks, status, status, channel, channel, account, account, hidden, hidden)
        given = (*keys_of(workspace, prefix), *kept, began, began, began, turn, limit)
        rows = await self._database.read(lambda tx: tx.execute(_THREADS, given))
        return tuple(_record(row, self._database.name) for row in rows)

    async def running(self, *, limit: int = 1000) -> tuple[TurnRecord, ...]:
        """The running and interrupted turns of all workspaces, newest first. It reads all turns, so it is slow."""
        rows = await self._database.read(lambda tx: tx.execute(_RUNNING, (limit,)))
        return tuple(_record(row, self._database.name) for row in rows)

    async def again(self, records: Sequence[TurnRecord]) -> dict[str, TurnRecord]:
        """The same turns as they are now, by their ids."""
        rows = await self._database.find(_BY_IDS, [record.id for record in records])
        return {found.id: found for found in (_record(row, self._database.name) for row in rows)}

    @staticmethod
    def ongoing(transaction: Transaction, database: str) -> tuple[TurnRecord, ...]:
        """The turns of all workspaces that run or can be resumed. For a database that was not migrated.

        Args:
            transaction: Reads the database.
            database: Its name, for errors.
        """
        return tuple(_record(row, database) for row in transaction.execute(_ONGOING))

    async def archive(self, thread: str, archived: bool) -> bool:
        """Mark a thread as archived, or take the mark away; False if it has no turn."""
        given = (1 if archived else None, thread)
        return bool(await self._database.transact(lambda tx: tx.execute(_ARCHIVE, given)))

    @staticmethod
    def hand(transaction: Transaction, thread: str, handed: Handed | None) -> bool:
        """Let another one speak in a thread from its next turn on; False if it has no turn."""
        return bool(transaction.execute(_HAND, (None if handed is None else handed.to_text(), thread)))

    async def note_stale(self, turn_id: str) -> bool:
        """Note that a turn can never resume; False if that was noted before, or the turn is over."""
        given = (self._clock.now().timestamp(), turn_id)
        return bool(await self._database.transact(lambda tx: tx.execute(_NOTE_STALE, given)))

    async def stale(self, workspace: str, *, before: datetime) -> tuple[TurnRecord, ...]:
        """The open turns of a workspace of which it was noted before a time that they can never resume."""
        rows = await self._database.read(lambda tx: tx.execute(_STALE, (workspace, before.timestamp())))
        return tuple(_record(row, self._database.name) for row in rows)

    async def ask_to_cancel(self, turn_id: str, *, gently: bool = False) -> bool:
        """Ask a turn's owner, in any process, to cancel it; False if the turn is over.

        Args:
            turn_id: The turn.
            gently: Whether it ends at its next safe point: calls under way end first.
        """
        given = (1 if gently else None, turn_id)
        return bool(await self._database.transact(lambda tx: tx.execute(_CANCEL, given)))

    async def cancel_requested(self) -> tuple[tuple[str, bool], ...]:
        """The ids of running turns whose cancellation was requested, each with whether calls under way end first."""
        rows = await self._database.read(lambda tx: tx.execute(_TO_CANCEL))
        return tuple((turn_id, bool(gentle)) for turn_id, gentle in rows)


def thread_key(scope: Scope) -> str:
    """The key of a thread: workspace and thread, so that two workspaces never share one."""
    return f"{_quoted(scope.workspace)}/{_quoted(scope.thread or '')}"


def name_of(key: str) -> str:
    """The id of a thread within its workspace, from its key."""
    return unquote(key.partition("/")[2])


def keys_of(workspace: str, prefix: str = "") -> tuple[str, str]:
    """The bounds of the keys of a workspace's threads whose ids begin so: the lowest key, and one above all of them."""
    lowest = f"{_quoted(workspace)}/{_quoted(prefix)}"
    return lowest, f"{lowest[:-1]}{chr(ord(lowest[-1]) + 1)}"


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _row(record: TurnRecord) -> tuple[object, ...]:
    scope, model, origin = record.scope, record.model, record.origin
    stored = {
        "workspace": scope.workspace,
        "name": scope.thread,
        "account": scope.account,
        "channel": scope.channel,
        "role": canonical_json(record.role),
        "began": record.began.timestamp(),
        "changed": record.changed.timestamp(),
        "model": canonical_json(list(model)) if model else None,
        "origin": None if origin is None else canonical_json(origin),
        "example": 1 if record.example else None,
        "archived": 1 if record.archived else None,
        "on_behalf_of": None if record.on_behalf_of == ROOT else record.on_behalf_of,
        "stale": None if record.stale is None else record.stale.timestamp(),
        "reports": None if record.reports is None else canonical_json(record.reports),
        "gentle": 1 if record.gentle else None,
        "handed": None if record.handed is None else record.handed.to_text(),
    }
    return tuple([stored[name] if name in stored else getattr(record, name) for name in _NAMES])


def _record(row: tuple[Any, ...], database: str) -> TurnRecord:
    kept = read_row(StoredTurn, row, what=f"the turn {row[0]!r} of thread {row[1]!r}", database=database)
    ids = {name: kept.pop(name) for name in ("workspace", "account", "channel")}
    kept["scope"] = Scope(**ids, thread=kept.pop("name"))
    kept["role"] = json.loads(kept["role"])
    kept["model"] = tuple(json.loads(kept["model"] or "[]"))
    kept["origin"] = json.loads(kept["origin"] or "null")
    kept["reports"] = json.loads(kept["reports"] or "null")
    for name in ("example", "archived", "gentle"):
        kept[name] = bool(kept[name])
    kept["on_behalf_of"] = kept["on_behalf_of"] or ROOT
    kept["handed"] = None if kept["handed"] is None else handed_of(kept["handed"])
    for name in ("began", "changed", "stale"):
        kept[name] = None if kept[name] is None else datetime.fromtimestamp(kept[name], UTC)
    return TurnRecord(**kept)
