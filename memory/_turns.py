"""The turns of all threads, one row each: which there are, what became of them, and who asked for their end.

What a turn said stands in the conversation log, where it stands in the checkpoints, what it called in the journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from ..core import Clock, Scope, SystemClock, canonical_json
from ..core.events import TurnKind
from ..storage import Database, Lease, Schema, Transaction

TurnStatus = Literal["running", "paused", "stopped", "done", "failed", "cancelled", "abandoned"]

_COLUMNS = (
    "id, thread, workspace, name, account, channel, kind, author, status, asked, role, prompt, code, graph, began, "
    "changed"
)

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
    ),
)
_INSERT = f"INSERT INTO wa_turn({_COLUMNS}) VALUES({', '.join('?' * 16)})"
_UPDATE = "UPDATE wa_turn SET status=?, code=?, changed=? WHERE id=?"
_LATEST = f"SELECT {_COLUMNS} FROM wa_turn WHERE thread=? ORDER BY id DESC LIMIT 1"
_CANCEL = "UPDATE wa_turn SET cancel=1 WHERE id=? AND status IN ('running', 'paused', 'stopped', 'failed') RETURNING id"
_TO_CANCEL = "SELECT id FROM wa_turn WHERE cancel=1 AND status='running'"
_THREADS = f"""SELECT {_COLUMNS} FROM wa_turn
               WHERE workspace=? AND id IN (SELECT MAX(id) FROM wa_turn WHERE workspace=? GROUP BY thread)
               ORDER BY id DESC LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn as it is kept.

    Attributes:
        id: Its id; ids sort by the time of their making.
        thread: The key of its thread.
        scope: The ids it runs under.
        kind: Which surface.
        author: Who asked.
        status: What became of it. `running` without an owner was cut off.
        asked: The id of its message.
        role: What is kept of its role: tiers, a keyed digest, the key's id.
        prompt: Stands for a skill's prompt.
        code: The error's, where it failed.
        graph: Which graph it runs in.
        began: When it began.
        changed: When its status was last written.
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


class TurnRegister:
    """The turns in a database that was opened with the schema `TURNS`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def begin(self, record: TurnRecord, *, lease: Lease) -> None:
        """Write down a new turn.

        Raises:
            LeaseLost: Another owner took the thread over.
        """

        def work(transaction: Transaction) -> None:
            lease.verify(transaction)
            transaction.execute(_INSERT, _row(record))

        await self._database.transact(work)

    async def end(self, record: TurnRecord, status: TurnStatus, *, code: str | None = None, lease: Lease) -> TurnRecord:
        """Write down what became of a turn, for now or for good.

        Raises:
            LeaseLost: Another owner took the thread over.
        """
        now = self._clock.now()

        def work(transaction: Transaction) -> None:
            lease.verify(transaction)
            transaction.execute(_UPDATE, (status, code, now.timestamp(), record.id))

        await self._database.transact(work)
        return replace(record, status=status, code=code, changed=now)

    async def latest(self, thread: str) -> TurnRecord | None:
        """The newest turn of a thread."""
        rows = await self._database.read(lambda tx: tx.execute(_LATEST, (thread,)))
        return _record(rows[0]) if rows else None

    async def threads(self, workspace: str, *, limit: int = 100) -> tuple[TurnRecord, ...]:
        """The newest turn of each thread of a workspace, newest first."""
        rows = await self._database.read(lambda tx: tx.execute(_THREADS, (workspace, workspace, limit)))
        return tuple(map(_record, rows))

    async def ask_to_cancel(self, turn_id: str) -> bool:
        """Ask a turn's owner, whatever process it is, to cancel it; False if it is over."""
        return bool(await self._database.transact(lambda tx: tx.execute(_CANCEL, (turn_id,))))

    async def to_cancel(self) -> tuple[str, ...]:
        """The turns whose end somebody asked for."""
        return tuple(turn_id for (turn_id,) in await self._database.read(lambda tx: tx.execute(_TO_CANCEL)))


def _row(record: TurnRecord) -> tuple[object, ...]:
    scope = record.scope
    return (
        record.id,
        record.thread,
        scope.workspace,
        scope.thread,
        scope.account,
        scope.channel,
        record.kind,
        record.author,
        record.status,
        record.asked,
        canonical_json(record.role),
        record.prompt,
        record.code,
        record.graph,
        record.began.timestamp(),
        record.changed.timestamp(),
    )


def _record(row: tuple[Any, ...]) -> TurnRecord:
    (
        turn_id,
        thread,
        workspace,
        name,
        account,
        channel,
        kind,
        author,
        status,
        asked,
        role,
        prompt,
        code,
        graph,
        *times,
    ) = row
    began, changed = (datetime.fromtimestamp(at, UTC) for at in times)
    return TurnRecord(
        id=turn_id,
        thread=thread,
        scope=Scope(workspace=workspace, account=account, channel=channel, thread=name),
        kind=kind,
        author=author,
        status=status,
        asked=asked,
        role=json.loads(role),
        prompt=prompt,
        code=code,
        graph=graph,
        began=began,
        changed=changed,
    )
