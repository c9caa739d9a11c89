"""The journal: one row for each call of a turn, the truth about what ran and with which result (D8).

Rows and where they are kept, nothing else. What is run, held back or asked is decided in `drive`. Checkpoints, which
tell where a turn stands between calls, are LangGraph's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from ...core import canonical_json
from ...core.errors import CallRefused, LimitReached, PauseExpired
from ...storage import Database, Lease, Schema, Transaction, check_row
from .stored import CallKind, CallState, StoredCall

_COLUMNS = (
    "id, turn, parent, name, kind, hash, state, epoch, at, input, ask, decision, result, role, expires, version, gate"
)

_NAMES = tuple(_COLUMNS.split(", "))

JOURNAL = Schema(
    "journal",
    (
        (
            """CREATE TABLE wa_call(
                 id TEXT PRIMARY KEY,
                 turn TEXT NOT NULL,
                 parent TEXT NOT NULL,
                 name TEXT NOT NULL,
                 kind TEXT NOT NULL,
                 hash TEXT NOT NULL,
                 state TEXT NOT NULL,
                 epoch BIGINT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 input TEXT,
                 ask TEXT,
                 decision TEXT,
                 result TEXT,
                 role TEXT,
                 expires DOUBLE PRECISION,
                 version TEXT)""",
            "CREATE INDEX wa_call_turn ON wa_call(turn)",
        ),
        ("ALTER TABLE wa_call ADD COLUMN site TEXT",),  # is no longer written or read (decision 0079)
        ("ALTER TABLE wa_call ADD COLUMN gate TEXT",),
    ),
)
_PUT = f"""INSERT INTO wa_call({_COLUMNS}) VALUES({", ".join("?" * len(_NAMES))})
           ON CONFLICT(id) DO UPDATE SET state=excluded.state, epoch=excluded.epoch, ask=excluded.ask,
             decision=excluded.decision, result=excluded.result, expires=excluded.expires, gate=excluded.gate"""
_CHANGED = '"arguments"'
_LIMIT = LimitReached.code
_REFUSED = (CallRefused.code, PauseExpired.code)
_LOAD = f"SELECT {_COLUMNS} FROM wa_call WHERE turn=?"
_ROLES = "SELECT DISTINCT role FROM wa_call WHERE turn=? AND role IS NOT NULL ORDER BY role"
# Path ids of all that a call has called begin with its own and a slash; `0` is the character after it.
_WITHDRAW = """UPDATE wa_call SET state='withdrawn'
               WHERE turn=? AND id >= ? AND id < ? AND state IN ('waiting', 'uncertain')"""
_WITHDRAW_ALL = "UPDATE wa_call SET state='withdrawn' WHERE turn=? AND state IN ('waiting', 'uncertain')"
_ASKED = """SELECT turn, SUM(CASE WHEN decision IS NULL THEN 1 ELSE 0 END),
                   SUM(CASE WHEN decision IS NULL THEN 0 ELSE 1 END)
            FROM wa_call WHERE turn IN ({}) AND state IN ('waiting', 'uncertain') GROUP BY turn"""
# One statement looks and writes: of two who answer at once the second waits for the first, and finds no question.
_ANSWER = """UPDATE wa_call SET decision=?
             WHERE id=? AND turn=? AND decision IS NULL AND state IN ('waiting', 'uncertain') RETURNING id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a turn as the journal keeps it.

    Attributes:
        id: Its path id.
        turn: The turn it belongs to.
        parent: The path id of the call, task or turn that made it.
        name: The function's name, the shape's key, the Signature's name.
        kind: What it is.
        hash: Stands for its input, so that a replay that asks for something else is noticed.
        state: `waiting` and `uncertain` wait for a person, `started` was under way when the row was written.
        epoch: The owner that wrote the state; 0 where what was begun surely did nothing.
        at: When it was first written, in seconds since 1970.
        input: Its params as JSON; None where they are not needed again.
        ask: What a person is asked, as JSON.
        decision: What the person said, as JSON.
        result: Its result or error as JSON.
        role: Stands for the role it was given; opaque here.
        expires: When nobody need answer any more, in seconds since 1970.
        version: Stands for what its params and its result are declared as.
        gate: What the gate said of it, and a person after it, as JSON.
    """

    id: str
    turn: str
    parent: str
    name: str
    kind: CallKind
    hash: str
    state: CallState
    epoch: int
    at: float
    input: str | None = None
    ask: str | None = None
    decision: str | None = None
    result: str | None = None
    role: str | None = None
    expires: float | None = None
    version: str | None = None
    gate: str | None = None

    @property
    def let(self) -> Any:
        """What the gate said of it, or None."""
        if self.gate is None:
            return None
        # What nobody changed is the same text for call after call; what a person said is read anew.
        return json.loads(self.gate) if _CHANGED in self.gate else _read_plain(self.gate)

    @property
    def arguments(self) -> dict[str, Any]:
        """What it is, or was, made with: its params, or what a person put in their place."""
        changed = (self.let or {}).get("arguments")
        if changed is None:
            changed = {} if self.input is None else json.loads(self.input)
        return dict(changed)

    @property
    def by(self) -> str:
        """What let it through."""
        let = self.let
        return "" if let is None else str(let["by"])

    @property
    def over(self) -> bool:
        """Whether it has a result or an error, which a replay gets again."""
        return self.state in ("done", "failed")

    @property
    def counts(self) -> bool:
        """Whether it is a call that was made, and not one that a limit refused."""
        if self.kind not in ("leaf", "flow", "task"):
            return False
        return self.gate is not None or self._code != _LIMIT

    @property
    def refused(self) -> bool:
        """Whether it failed for want of leave, so that nothing was done."""
        return self._code in _REFUSED

    @property
    def _code(self) -> str | None:
        """The code of what it failed with."""
        return json.loads(self.result or "{}").get("code") if self.state == "failed" else None

    @property
    def made(self) -> bool:
        """Whether a body that runs again makes it again."""
        return self.state != "withdrawn"

    @property
    def open(self) -> bool:
        """Whether a person is asked and has not answered."""
        return self.state in ("waiting", "uncertain") and self.decision is None

    @property
    def answered(self) -> bool:
        """Whether a person has answered, and nobody has taken the answer up yet."""
        return self.state in ("waiting", "uncertain") and self.decision is not None

    @property
    def settled(self) -> bool:
        """Whether a person was asked, and nobody waits for an answer any more."""
        return self.ask is not None and self.made and not self.open

    @property
    def decided(self) -> Any:
        """What the person said, or None."""
        return None if self.decision is None else json.loads(self.decision)

    def late(self, now: datetime) -> bool:
        """Whether the time for an answer is over."""
        return self.expires is not None and now.timestamp() >= self.expires


@lru_cache(maxsize=256)
def _read_plain(gate: str) -> Any:
    """What the gate said, for whoever looks at it and changes nothing."""
    let = json.loads(gate)
    return MappingProxyType(let) if isinstance(let, dict) else let


class Journal(Protocol):
    """Where the calls of turns are kept. A late owner's writes are refused by `lease`.

    Under a lease, what says that a leaf with an effect is begun or over is on the disk when the write returns; the rest
    goes with what the turn writes next.
    """

    async def load(self, turn: str, *, lease: Lease | None = None) -> dict[str, CallRecord]:
        """All calls of a turn by path id; with those that wait to be written under `lease`, which are written then.

        Raises:
            StorageInvalid: What is kept of one is not what was written; the text names the call.
        """
        ...

    async def put(self, records: Sequence[CallRecord], *, lease: Lease | None) -> None:
        """Write calls anew, or their states over what is there.

        Raises:
            LeaseLost: Another owner took the thread over.
        """
        ...

    async def finish(self, records: Sequence[CallRecord], *, lease: Lease | None) -> None:
        """As `put`; what a person is still asked below them is withdrawn, for nobody waits for it any more."""
        ...

    async def answer(self, turn: str, decisions: Mapping[str, Any]) -> tuple[str, ...]:
        """Write what a person said to calls, by their ids and whoever owns the thread: all of it or nothing.

        Returns:
            The calls that ask no more, since somebody was first or nobody waits; with one, nothing is written.
        """
        ...

    async def withdraw(self, turn: str) -> None:
        """Ask nobody anything any more for this turn."""
        ...

    async def asked(self, turns: Sequence[str]) -> dict[str, tuple[int, int]]:
        """For each turn that asks somebody: how many questions are open, and how many answers nobody has taken up."""
        ...


class SqlJournal:
    """`Journal` in a database that was opened with the schema `JOURNAL`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, turn: str, *, lease: Lease | None = None) -> dict[str, CallRecord]:
        """See `Journal.load`."""

        def work(transaction: Transaction) -> list[tuple[Any, ...]]:
            return transaction.execute(_LOAD, (turn,))

        rows = await (self._database.read(work) if lease is None else lease.commit(work))
        return {record.id: record for record in (_record(row, self._database.name) for row in rows)}

    async def put(self, records: Sequence[CallRecord], *, lease: Lease | None) -> None:
        """See `Journal.put`."""
        await self._written(lambda tx: _write(tx, records), records, lease)

    async def finish(self, records: Sequence[CallRecord], *, lease: Lease | None) -> None:
        """See `Journal.finish`."""

        def work(transaction: Transaction) -> None:
            _write(transaction, records)
            for record in records:
                transaction.execute(_WITHDRAW, (record.turn, f"{record.id}/", f"{record.id}0"))

        await self._written(work, records, lease)

    async def _written(
        self, work: Callable[[Transaction], None], records: Sequence[CallRecord], lease: Lease | None
    ) -> None:
        if lease is None:
            await self._database.transact(work)
        elif _acts(records):
            await lease.commit(work)
        else:
            lease.enqueue(work)

    async def answer(self, turn: str, decisions: Mapping[str, Any]) -> tuple[str, ...]:
        """See `Journal.answer`."""
        texts = {call_id: canonical_json(decision) for call_id, decision in decisions.items()}

        def work(transaction: Transaction) -> None:
            # In the order of ids: two who answer the same calls at once do not wait for each other in a ring.
            gone = {
                call_id
                for call_id in sorted(texts)
                if not transaction.execute(_ANSWER, (texts[call_id], call_id, turn))
            }
            if gone:
                raise _Gone(gone)  # so that none of them is taken

        try:
            await self._database.transact(work)
        except _Gone as found:
            return tuple(call_id for call_id in texts if call_id in found.calls)
        return ()

    async def withdraw(self, turn: str) -> None:
        """See `Journal.withdraw`."""
        await self._database.transact(lambda tx: tx.execute(_WITHDRAW_ALL, (turn,)))

    async def asked(self, turns: Sequence[str]) -> dict[str, tuple[int, int]]:
        """See `Journal.asked`."""
        if not turns:
            return {}
        statement = _ASKED.format(", ".join("?" * len(turns)))
        rows = await self._database.read(lambda tx: tx.execute(statement, tuple(turns)))
        return {turn: (open_, answered) for turn, open_, answered in rows}

    @staticmethod
    def roles(transaction: Transaction, turn: str) -> tuple[str, ...]:
        """What stands for the roles of a turn's calls, for one who reads a database and opens none."""
        return tuple(role for (role,) in transaction.execute(_ROLES, (turn,)))


class _Gone(Exception):
    """Calls that ask nobody any more."""

    def __init__(self, calls: set[str]) -> None:
        super().__init__()
        self.calls = calls


def _acts(records: Sequence[CallRecord]) -> bool:
    """Whether one says that an effect is about to happen or has happened: that is on the disk before what follows."""
    return any(
        record.kind in ("leaf", "round") and record.input is not None and record.state != "waiting"
        for record in records
    )


def _write(transaction: Transaction, records: Sequence[CallRecord]) -> None:
    for record in records:
        transaction.execute(_PUT, tuple(getattr(record, name) for name in _NAMES))


def _record(row: tuple[Any, ...], database: str) -> CallRecord:
    columns: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    check_row(StoredCall, columns, what=f"the call {columns['id']!r}", database=database)
    return CallRecord(**columns)
