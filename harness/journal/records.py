"""The journal: one row for each call of a turn, which is authoritative for what ran and with which result (D8).

This module has the rows and their storage; `drive` decides which calls run, wait or ask a person. LangGraph keeps the
checkpoints, which are the turn's state between calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, model_validator

from ...core import Scope, canonical_json
from ...core.errors import CallRefused, LimitReached, PauseExpired
from ...core.events import PauseKind, Risk
from ...core.pauses import pause_id_of
from ...storage import Database, Lease, Moment, Row, Schema, Transaction, read_row

CallKind = Literal[
    "leaf", "flow", "task", "model", "program", "question", "round", "recall", "reply", "offer", "service"
]
CallState = Literal["waiting", "started", "done", "failed", "uncertain", "withdrawn"]


_NEVER: Final = 1e18  # after all times, in seconds since 1970


Always = Literal["same", "any"]
"""The calls that a person's "always" covers for the rest of the turn; versions up to 0.1.0 wrote true."""


class _Asked(BaseModel):
    kind: PauseKind
    question: str | None = None
    options: list[str] | None = None
    declared: dict[str, Any] | None = Field(None, alias="schema")
    problem: str | None = None
    risk: list[Risk] = []
    description: str = ""
    reason: str = ""
    caller: str = ""
    approvers: list[str] = []
    login: str = ""
    labels: dict[str, Any] = {}


class _StoredGateDecision(BaseModel):
    decision: Literal["approve", "modify", "reject", "refuse"]
    by: str
    caller: str = ""
    function: str = ""
    account: str | None = None
    always: bool | Always = False
    covers: str = ""
    description: str = ""
    arguments: dict[str, Any] | None = None
    result: dict[str, Any] = {}
    labels: dict[str, Any] = {}


class _Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Plain(_Decision):
    kind: Literal["lost", "again", "expired"]


class _Approval(_Decision):
    kind: Literal["approve"]
    account: str | None = None
    always: bool | Always = False
    arguments: dict[str, Any] | None = None


class _Refusal(_Decision):
    kind: Literal["reject"]
    reason: str
    account: str | None = None


class _Value(_Decision):
    kind: Literal["answer", "happened", "reply"]
    value: Any


_ANSWERS = {
    "approval": ("approve", "reject"),
    "question": ("answer",),
    "uncertain": ("happened", "lost", "again"),
    "reply": ("reply", "expired"),
}


class _Failure(BaseModel):
    code: str
    problem: str
    remedy: str


class StoredCall(Row):
    """A row of `wa_call`."""

    id: str
    turn: str
    parent: str
    name: str
    kind: CallKind
    hash: str
    state: CallState
    epoch: int
    at: Moment
    input: Json[Any] | None
    ask: Json[_Asked] | None
    decision: Json[Annotated[_Plain | _Approval | _Refusal | _Value, Field(discriminator="kind")]] | None
    result: Json[Any] | None
    role: str | None
    expires: Moment | None
    version: str | None
    gate: Json[_StoredGateDecision] | None

    @model_validator(mode="after")
    def _fits_its_kind_and_state(self) -> StoredCall:
        if self.kind in ("leaf", "flow", "task", "offer", "service") and not isinstance(self.input, dict | None):
            raise ValueError("the input of a call must be an object")
        for kind in ("question", "reply"):
            if (self.kind == kind) != (self.ask is not None and self.ask.kind == kind):
                raise ValueError(f"a {kind} must have a request of kind {kind!r}, and no other call can have one")
        if self.decision is not None and (self.ask is None or self.decision.kind not in _ANSWERS[self.ask.kind]):
            raise ValueError("the decision does not fit the request")
        if self.state == "failed":
            _Failure.model_validate(self.result)
        return self


_NAMES = tuple(StoredCall.model_fields)
_COLUMNS = ", ".join(_NAMES)
_VALUES = attrgetter(*_NAMES)

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
        ("CREATE INDEX wa_call_reply ON wa_call(turn) WHERE kind='reply' AND state='waiting'",),
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
# The path ids below a call begin with its own id and a slash; `0` is the character after the slash.
_WITHDRAW = """UPDATE wa_call SET state='withdrawn'
               WHERE turn=? AND id >= ? AND id < ? AND state IN ('waiting', 'uncertain')"""
_WITHDRAW_ALL = "UPDATE wa_call SET state='withdrawn' WHERE turn=? AND state IN ('waiting', 'uncertain')"
_ASKED = """SELECT turn, SUM(CASE WHEN decision IS NULL THEN 1 ELSE 0 END),
                   SUM(CASE WHEN decision IS NULL THEN 0 ELSE 1 END)
            FROM wa_call WHERE turn IN ({}) AND state IN ('waiting', 'uncertain') GROUP BY turn"""
_REPLIES = f"""SELECT c.id, c.turn, c.input, c.expires, t.name, t.account, t.channel
               FROM wa_call c JOIN wa_turn t ON t.id = c.turn
               WHERE c.kind='reply' AND c.state='waiting' AND c.decision IS NULL AND t.workspace=? AND t.status='paused'
               ORDER BY COALESCE(c.expires, {_NEVER}), c.id LIMIT ?"""
# One statement checks and writes, so that of two concurrent answers the second finds no open question.
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
        kind: Its kind.
        hash: A digest of its input, by which a replay with another input is noticed.
        state: `waiting` and `uncertain` wait for a person; `started` was running when the row was written.
        epoch: The epoch of the owner that wrote the state; 0 if the call was started but certainly had no effect.
        at: When it was first written, in seconds since 1970.
        input: Its params as JSON; None if they are not needed again.
        ask: The request to a person, as JSON.
        decision: The person's answer, as JSON.
        result: Its result or error as JSON.
        role: A digest of its role; opaque here.
        expires: When the request to a person expires, in seconds since 1970.
        version: A digest of its declared params and result.
        gate: The decision of the gate, and of a person after it, as JSON.
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
    def recorded_decision(self) -> Any:
        """The recorded decision about it, or None."""
        if self.gate is None:
            return None
        # Decisions without changed arguments are equal texts for many calls, so their parsed form is cached.
        return json.loads(self.gate) if _CHANGED in self.gate else _read_plain(self.gate)

    @property
    def reply_marks(self) -> Sequence[str]:
        """The untrusted content that a reply was made of: the `marks` of its value; none for any other record."""
        value = json.loads(self.result) if self.kind == "reply" and self.result is not None else None
        return value.get("marks", ()) if isinstance(value, dict) else ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that it runs with: its params, or those that a person put in their place."""
        changed = (self.recorded_decision or {}).get("arguments")
        if changed is None:
            changed = {} if self.input is None else json.loads(self.input)
        return dict(changed)

    @property
    def by(self) -> str:
        """What approved it, such as `rule:NAME` or `person`."""
        recorded_decision = self.recorded_decision
        return "" if recorded_decision is None else str(recorded_decision["by"])

    @property
    def over(self) -> bool:
        """Whether it has a result or an error, which a replay returns."""
        return self.state in ("done", "failed")

    @property
    def begun(self) -> bool:
        """Whether it ran when it was written last, or is over, so that it can have had an effect."""
        was_running = self.state == "started" and bool(self.epoch)
        return self.over or was_running or json.loads(self.ask or "{}").get("kind") == "uncertain"

    @property
    def counts(self) -> bool:
        """Whether it is a call that was made, not one that a limit refused."""
        if self.kind not in ("leaf", "flow", "task", "service"):
            return False
        return self.gate is not None or self._code != _LIMIT

    @property
    def refused(self) -> bool:
        """Whether it was not approved, so that it had no effect."""
        return self._code in _REFUSED

    @property
    def _code(self) -> str | None:
        """The code of its error."""
        return json.loads(self.result or "{}").get("code") if self.state == "failed" else None

    @property
    def made(self) -> bool:
        """Whether it is part of the body's history, so that a replay must make it again."""
        return self.state != "withdrawn"

    @property
    def open(self) -> bool:
        """Whether a person is asked and has not answered."""
        return self.state in ("waiting", "uncertain") and self.decision is None

    @property
    def answered(self) -> bool:
        """Whether a person has answered, and the turn was not resumed with the answer yet."""
        return self.state in ("waiting", "uncertain") and self.decision is not None

    @property
    def settled(self) -> bool:
        """Whether a person was asked, and the request is no longer open."""
        return self.ask is not None and self.made and not self.open

    @property
    def decided(self) -> Any:
        """The person's answer, or None."""
        return None if self.decision is None else json.loads(self.decision)

    def late(self, now: datetime) -> bool:
        """Whether the request to a person has expired."""
        return self.expires is not None and now.timestamp() >= self.expires


@dataclass(frozen=True, slots=True)
class OpenReply:
    """A wait of a paused turn for the reply to a message, or for replies to several.

    Attributes:
        scope: The ids of the turn's thread.
        turn_id: The turn.
        pause_id: The pause, which `resume` takes the `Reply` by.
        message_ids: The messages.
        quorum: How many replies to several messages are enough; None for a wait of one message.
        expires: From when on `resume` needs no reply; None is never. The wait then ends with `PauseExpired`, or, for
            several messages, with the replies that came.
    """

    scope: Scope
    turn_id: str
    pause_id: str
    message_ids: tuple[str, ...]
    quorum: int | None
    expires: datetime | None


@lru_cache(maxsize=256)
def _read_plain(gate: str) -> Any:
    """Return a decision as a read-only mapping, because callers share it."""
    recorded_decision = json.loads(gate)
    return MappingProxyType(recorded_decision) if isinstance(recorded_decision, dict) else recorded_decision


class Journal:
    """The calls of turns, in a database that was opened with the schema `JOURNAL`.

    `lease` refuses the writes of an owner that has lost the thread. Under a lease, the record that a leaf with an
    effect begins or ends is on the disk when the write returns. Other records are written with the next commit of the
    turn.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, turn: str, *, lease: Lease | None = None) -> dict[str, CallRecord]:
        """Return all calls of a turn by path id. With `lease`, its queued records are written first.

        Raises:
            StorageInvalid: A stored row is not valid; the text names the call.
        """

        def work(transaction: Transaction) -> list[tuple[Any, ...]]:
            return transaction.execute(_LOAD, (turn,))

        rows = await (self._database.read(work) if lease is None else lease.commit(work))
        return {record.id: record for record in (_record(row, self._database.name) for row in rows)}

    async def put(
        self, records: Sequence[CallRecord], *, lease: Lease | None, also: Callable[[Transaction], None] | None = None
    ) -> None:
        """Write new calls, or update the state of existing ones.

        Args:
            records: The calls.
            lease: The ownership of the turn's thread.
            also: Writes more in the same transaction.

        Raises:
            LeaseLost: Another owner has taken over the thread.
        """
        await self._written(lambda tx: _write(tx, records, also), records, lease)

    async def finish(
        self, records: Sequence[CallRecord], *, lease: Lease | None, also: Callable[[Transaction], None] | None = None
    ) -> None:
        """Write calls as `put` does, and withdraw the open requests to a person below them."""

        def work(transaction: Transaction) -> None:
            _write(transaction, records, also)
            for record in records:
                transaction.execute(_WITHDRAW, (record.turn, f"{record.id}/", f"{record.id}0"))

        await self._written(work, records, lease)

    async def _written(
        self, work: Callable[[Transaction], None], records: Sequence[CallRecord], lease: Lease | None
    ) -> None:
        if lease is None:
            await self._database.transact(work)
        elif _record_effects(records):
            await lease.commit(work)
        else:
            lease.enqueue(work)

    async def answer(self, turn: str, decisions: Mapping[str, Any]) -> tuple[str, ...]:
        """Write a person's decisions about calls, by their ids; atomic, and independent of the owner of the thread.

        Returns:
            The calls that are no longer open, because they were answered or withdrawn. If there is one, nothing is
            written.
        """
        texts = {call_id: canonical_json(decision) for call_id, decision in decisions.items()}

        def work(transaction: Transaction) -> None:
            # In the order of ids, so that two concurrent answers to the same calls cannot deadlock.
            gone = {
                call_id
                for call_id in sorted(texts)
                if not transaction.execute(_ANSWER, (texts[call_id], call_id, turn))
            }
            if gone:
                raise _Gone(gone)  # rolls the transaction back

        try:
            await self._database.transact(work)
        except _Gone as found:
            return tuple(call_id for call_id in texts if call_id in found.calls)
        return ()

    async def withdraw(self, turn: str) -> None:
        """Withdraw all open requests to a person of this turn."""
        await self._database.transact(lambda tx: tx.execute(_WITHDRAW_ALL, (turn,)))

    async def asked(self, turns: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return for each turn with pauses how many are open, and how many are answered but not resumed."""
        return {turn: (open_, answered) for turn, open_, answered in await self._database.find(_ASKED, turns)}

    async def open_replies(self, workspace: str, *, limit: int = 1000) -> tuple[OpenReply, ...]:
        """Return the replies that paused turns of a workspace wait for, the earliest deadline first.

        Args:
            workspace: The workspace.
            limit: How many to return.
        """
        return await self._database.read(lambda transaction: self.replies_in(transaction, workspace, limit))

    @staticmethod
    def replies_in(transaction: Transaction, workspace: str, limit: int) -> tuple[OpenReply, ...]:
        """Return what `open_replies` does, within an open transaction."""
        return tuple(
            OpenReply(
                Scope(workspace=workspace, account=account, channel=channel, thread=thread),
                turn,
                pause_id_of(call_id),
                tuple(asked["message_ids"] if "message_ids" in asked else [asked["message_id"]]),
                asked.get("quorum"),
                None if expires is None else datetime.fromtimestamp(expires, UTC),
            )
            for call_id, turn, given, expires, thread, account, channel in transaction.execute(
                _REPLIES, (workspace, limit)
            )
            for asked in [json.loads(given)]
        )

    @staticmethod
    def roles(transaction: Transaction, turn: str) -> tuple[str, ...]:
        """Return the digests of the roles of a turn's calls, within an open transaction."""
        return tuple(role for (role,) in transaction.execute(_ROLES, (turn,)))


class _Gone(Exception):
    """Calls that are no longer open."""

    def __init__(self, calls: set[str]) -> None:
        super().__init__()
        self.calls = calls


def _record_effects(records: Sequence[CallRecord]) -> bool:
    """Whether a record says that an effect begins or has happened; it must be on the disk before the turn continues."""
    return any(
        record.kind in ("leaf", "round") and record.input is not None and record.state != "waiting"
        for record in records
    )


def _write(transaction: Transaction, records: Sequence[CallRecord], also: Callable[[Transaction], None] | None) -> None:
    for record in records:
        transaction.execute(_PUT, _VALUES(record))
    if also is not None:
        also(transaction)


def _record(row: tuple[Any, ...], database: str) -> CallRecord:
    return CallRecord(**read_row(StoredCall, row, what=f"the call {row[0]!r}", database=database))
