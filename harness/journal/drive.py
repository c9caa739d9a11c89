"""One owner's run of a turn: recorded calls return their result, new calls run, and others wait for approval (D8).

`start`, `resume` and recovery after a crash work alike: the bodies run from the start, and the journal returns the
results of calls that ran before. This module decides about one call; `frame` keeps the calls of a body in order. It
knows no graph, no model and no role: a step carries a digest of its role.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from types import NoneType
from typing import Any, Final, NoReturn

from ...core import ROOT, Clock, canonical_json
from ...core.errors import (
    AnswerInvalid,
    BudgetReached,
    CallRefused,
    Diverged,
    EffectLost,
    EffectUncertain,
    HostError,
    LeaseLost,
    NobodyToAsk,
    ParamsInvalid,
    PauseExpired,
    RoleChanged,
    StorageInvalid,
    StorageUnavailable,
    TaskFailed,
    WorldAgentError,
)
from ...core.pauses import UnattendedMode
from ...storage import Lease, Transaction
from ..limits import TurnLimitReached
from .pauses import SUSPENDED, Ask, Step, Suspended
from .records import CallRecord, Journal

_NO_EFFECT_EPOCH: Final = 0
"""The epoch of a call that was started and certainly had no effect; the epochs of owners begin at 1."""

_RUN: Final = object()
"""Returned by `_admit` for a step that can run; None would be a valid result."""

UNATTENDED: Final = "unattended"
"""The decider in the gate's records if an unattended turn refuses a call that requires approval."""

_JSON_STABLE_TYPES: Final = frozenset({bool, int, str, NoneType})
"""Types whose values do not change when they are written as JSON and read again."""

ABOUT_THE_TURN = (
    Diverged,
    EffectUncertain,
    RoleChanged,
    LeaseLost,
    StorageUnavailable,
    StorageInvalid,
    TurnLimitReached,
    BudgetReached,
)
"""Errors that end a turn's run wherever they occur; no call, task or plan sees them."""


class Drive:
    """One owner's run of one turn.

    Args:
        turn: The turn's id.
        records: The turn's records in the journal.
        journal: The journal; None records no calls, and then no person can be asked.
        lease: The ownership of the turn's thread.
        clock: The clock.
        thinkers: The names of tasks that consist of a model's work only.
        on_behalf_of: The member that the turn runs for.
        handed: Whether it speaks in the conversation of a person.

    Attributes:
        on_behalf_of: The member that the turn runs for; `root` if it is a turn of no member. It never changes.
        stopping: Whether the turn is being stopped: no new call begins, so that the turn can be resumed later.
        interrupted: Whether a message ends the turn, so that it is not resumed.
        acting: Whether calls were made whose results may not be in the log yet.
        refreshed: Whether calls can get another role than they had when they were recorded.
        unattended: What the turn does instead of asking a person; None asks.
        also: Writes what the turn notes, in each transaction that writes its calls.
    """

    def __init__(
        self,
        turn: str,
        *,
        records: dict[str, CallRecord] | None = None,
        journal: Journal | None = None,
        lease: Lease | None = None,
        clock: Clock,
        thinkers: Collection[str] = (),
        on_behalf_of: str = ROOT,
        handed: bool = False,
    ) -> None:
        self.turn = turn
        self.handed: Final = handed
        self.on_behalf_of: Final = on_behalf_of
        self.stopping = False
        self.interrupted = False
        self.acting = False
        self.refreshed = False
        self.unattended: UnattendedMode | None = None
        self.also: Callable[[Transaction], None] | None = None
        self._records = records if records is not None else {}
        # An index, because each call looks up the records below it; searching all records would take quadratic time.
        self._below: dict[str, list[CallRecord]] = {}
        for record in self._records.values():
            self._below.setdefault(record.parent, []).append(record)
        self._model_influenced_bodies = _model_influenced_bodies(self._records.values(), thinkers)
        self._journal = journal
        self._lease = lease
        self._epoch = lease.epoch if lease is not None else 0
        self._clock = clock
        self._unwritten: dict[str, CallRecord] = {}
        self._unrecorded_failures: dict[str, CallRecord] = {}
        self._settling = asyncio.Lock()

    def now(self) -> datetime:
        """Return the time by the turn's clock."""
        return self._clock.now()

    def recorded(self, step_id: str) -> CallRecord | None:
        """Return the record of a call, if there is one."""
        return self._records.get(step_id)

    def recorded_below(self, parent: str) -> tuple[CallRecord, ...]:
        """Return the calls that `parent` made in earlier runs."""
        return tuple(self._below.get(parent, ()))

    def mark_model_influenced_body(self, path: str) -> None:
        """Take note that a model has influenced what the body of this call does and returns."""
        self._model_influenced_bodies.add(path)

    def is_model_influenced(self, path: str) -> bool:
        """Whether a model has influenced what the body of this call does and returns."""
        return path in self._model_influenced_bodies

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked: that needs a journal, which keeps the call until the answer arrives."""
        return self._journal is not None

    @property
    def left(self) -> tuple[str, ...]:
        """The ids of calls with an answered pause that no body has made again in this run."""
        return tuple(record.id for record in self._records.values() if record.answered)

    async def run(self, step: Step) -> Any:
        """Run a step, or return its recorded result.

        Returns:
            Its result as JSON, or `SUSPENDED`.

        Raises:
            Diverged: A call with another input was recorded under its id.
            RoleChanged: It had another role when it was recorded.
            NobodyToAsk: It requires a person, and there is no journal that could keep the request.
            WorldAgentError: The error of the step, raised now or recorded in an earlier run.
        """
        record = self._recall(step)
        if record.over:
            return _given(record)
        if step.refusal is not None:
            # The record of a question must have the question, even if it is refused.
            ask = step.ask.json() if step.kind == "question" and step.ask is not None else record.ask
            return await self._fail(replace(record, gate=step.gate, ask=ask), step.refusal)
        record, outcome = await self._admit(step, record)
        if outcome is not _RUN:
            return outcome
        if step.kind in ("question", "reply"):
            return await self._answered(step, record)
        async with step.slot or nullcontext():
            return await self._begin(step, record)

    async def keep(self, step: Step, value: Any) -> Any:
        """Record a step that is already done, without running its body; also while the turn is being stopped.

        Args:
            step: The step.
            value: Its result, as JSON.

        Returns:
            Its result as JSON; if it was recorded before, the recorded result.
        """
        record = self._recall(step)
        return _given(record) if record.over else await self._done(record, value)

    def refuses(self, call_id: str) -> bool:
        """Whether the turn is unattended and refuses this call instead of asking a person."""
        record = self._records.get(call_id)
        asked = record is not None and (record.open or record.answered) and record.ask is not None
        return self.unattended == "refuse" and not asked

    async def settle(self, parent: str) -> None:
        """Record the transient failures below `parent`: its body continued after them, so a replay must repeat them."""
        if not self._unrecorded_failures and not self._settling.locked():
            return
        async with self._settling:  # no branch continues before the failures that a concurrent branch records
            for record in [record for record in self._unrecorded_failures.values() if record.parent == parent]:
                del self._unrecorded_failures[record.id]
                await self._finish(record)

    # --- what is recorded -------------------------------------------------------------------------------------------

    def _recall(self, step: Step) -> CallRecord:
        found = self._records.get(step.id)
        input_digest = step.hash
        if found is None:
            made = CallRecord(
                id=step.id,
                turn=self.turn,
                parent=step.parent,
                name=step.name,
                kind=step.kind,
                hash=input_digest,
                state="waiting" if step.ask else "started",
                epoch=self._epoch,
                at=self._clock.now().timestamp(),
                input=step.kept if step.ask or step.once else None,
                role=step.role,
                version=step.version,
                gate=step.gate,
            )
            if self._journal is not None:
                self._records[step.id] = self._unwritten[step.id] = made
            return made
        if (found.hash, found.name) != (input_digest, step.name):
            raise Diverged(
                f"the call {step.id!r} was recorded with another input",
                remedy="make the body repeat the same calls in the same order in each run, or start a new turn",
            )
        if found.role != step.role and not self.refreshed:
            raise RoleChanged(
                f"the call {step.id!r} had another role when the turn began",
                remedy="pass the same role again, or resume with `on_role_change` as `refresh`",
            )
        return self._restored(found) if found.state == "withdrawn" else found

    def _restored(self, found: CallRecord) -> CallRecord:
        """Restore a withdrawn call that a body makes again: it waits for a person as before."""
        lost = json.loads(found.ask or "{}").get("kind") == "uncertain"
        found = replace(found, state="started" if lost else "waiting", decision=None)
        self._records[found.id] = self._unwritten[found.id] = found
        return found

    # --- approvals --------------------------------------------------------------------------------------------------

    async def _admit(self, step: Step, record: CallRecord) -> tuple[CallRecord, Any]:
        """Check whether the step can run now; return its record with `_RUN`, or with the result it has instead."""
        doubtful = step.doubtful and record.decision is None
        interrupted = record.epoch not in (self._epoch, _NO_EFFECT_EPOCH)
        lost = record.state == "started" and step.once and (doubtful or interrupted)
        if lost or record.state == "uncertain":
            return await self._uncertain(step, record)
        if record.state != "waiting":
            return record, _RUN
        decision = record.decided
        if decision is None and record.late(self._clock.now()):
            decision = {"kind": "expired"}
        match decision:
            case None if step.ask is not None:  # otherwise approval is no longer required, but an answer still counts
                return record, await self._waits(step, record)
            case {"kind": "approve"} if step.kind != "question":
                return await self._approve(step, record, decision)
            case {"kind": "reject", "reason": reason}:
                return record, await self._fail(
                    self._with_decision(step, record, "reject", decision),
                    CallRefused(
                        f"a person refused the call of {step.name!r}" + (f": {reason}" if reason else ""),
                        remedy="do without it, or ask for something else",
                    ),
                )
            case {"kind": "expired"} if not step.gathers:
                return record, await self._fail(
                    self._with_decision(step, record, "refuse", {}),
                    PauseExpired(
                        f"the pause of {step.name!r} expired without an answer", remedy="do without it, or ask again"
                    ),
                )
            case _:
                return record, _RUN

    async def _approve(self, step: Step, record: CallRecord, decision: dict[str, Any]) -> tuple[CallRecord, Any]:
        """Apply a person's approval. If it is outdated, or its arguments are not allowed, the pause stays open."""
        arguments, ask = decision.get("arguments"), step.ask
        if ask is not None:
            problem = ask.outdated(json.loads(record.ask or "{}"), decision.get("account"))
            if not problem and arguments is not None and step.check is not None:
                problem = _validation_error(step.check, arguments)
            if problem:
                ask = step.ask or ask  # the check may have added its reason to `step.ask`
                await self._put(replace(record, decision=None, ask=ask.json(problem)))
                return record, SUSPENDED
        return self._with_decision(step, record, "approve" if arguments is None else "modify", decision), _RUN

    def _with_decision(self, step: Step, record: CallRecord, decision: str, said: dict[str, Any]) -> CallRecord:
        """Return the record with the decision of a person, or its expiry, as the gate keeps it."""
        return record if step.noted is None else replace(record, gate=step.noted(decision, said))

    async def _waits(self, step: Step, record: CallRecord) -> Suspended:
        assert step.ask is not None
        if self._journal is None:
            what = "a reply" if step.kind == "reply" else "a person's answer"
            raise NobodyToAsk(
                f"{step.name!r} requires {what}, and this call is not part of a turn",
                remedy="call it inside a turn, which can wait for the answer",
            )
        if record.id in self._unwritten:
            seconds = step.ask.seconds
            expires = None if seconds is None else self._clock.now().timestamp() + seconds
            await self._put(replace(record, ask=step.ask.json(), expires=expires))
        return SUSPENDED

    async def _uncertain(self, step: Step, record: CallRecord) -> tuple[CallRecord, Any]:
        """Handle a call that was running when its owner stopped: a person says whether it had its effect (T5)."""
        match record.decided if record.state == "uncertain" else None:
            case {"kind": "happened", "value": value}:
                return record, await self._done(record, value)
            case {"kind": "lost"}:
                return record, await self._fail(
                    record,
                    EffectLost(
                        f"the call of {record.name!r} was interrupted before it had an effect", remedy="make it again"
                    ),
                )
            case {"kind": "again"}:
                return record, _RUN
            case _:
                pass
        if record.state == "started":
            schema = None if step.result_schema is None else step.result_schema()
            ask = Ask(kind="uncertain", schema=schema or None).json()
            await self._put(replace(record, state="uncertain", epoch=self._epoch, ask=ask, decision=None, expires=None))
        if self.unattended == "refuse":
            raise EffectUncertain(
                f"the call {record.id!r} of {record.name!r} was running when a process ended and may have had its "
                "effect",
                remedy="find out whether it did, then resume the turn with Happened(result), NotHappened() or "
                "RunAgain() as the answer to the call's id",
            )
        return record, SUSPENDED

    async def _answered(self, step: Step, record: CallRecord) -> Any:
        """Read the answer to a question, or a reply; if it is not valid, the question stays open."""
        decision = record.decided or {}
        assert step.ask is not None
        try:
            value = await step.body(decision.get("value"))
        except AnswerInvalid as error:
            problem = error.problem
        else:
            return await self._done(record, value)
        await self._put(replace(record, decision=None, ask=step.ask.json(problem)))
        return SUSPENDED

    # --- doing it ---------------------------------------------------------------------------------------------------

    async def _begin(self, step: Step, record: CallRecord) -> Any:
        if self.stopping and not (self.interrupted and step.kind == "round"):  # a round is a part of a call under way
            return SUSPENDED
        if (step.once or step.ask is not None) and self._journal is not None:
            record = replace(record, state="started", epoch=self._epoch)
            await self._put(record)
        return await self._do(step, record)

    async def _do(self, step: Step, record: CallRecord) -> Any:
        try:
            value = await step.body(record.recorded_decision)
        except NobodyToAsk as error:
            if not self.can_ask:
                raise
            # In a turn a person can be asked, so the error comes from a call that the body made without a turn.
            failure: WorldAgentError = TaskFailed(f"{step.name!r} failed: {error.problem}", remedy=error.remedy)
        except ABOUT_THE_TURN:
            raise
        except HostError as error:
            if error.retryable:  # not recorded, so that it can be retried, unless the caller continues: see `settle`
                if step.once and error.unsent == record.id:
                    await self._put(replace(record, epoch=_NO_EFFECT_EPOCH))
                self._unrecorded_failures[record.id] = _failed(_with_read(record, step), error)
                raise
            failure = error
        except WorldAgentError as error:
            failure = error
        else:
            if value is SUSPENDED:
                return SUSPENDED
            return await self._done(_with_read(record, step) if step.read else record, value)
        return await self._fail(_with_read(record, step), failure)

    async def _done(self, record: CallRecord, value: Any) -> Any:
        """Record a result; return it as a replay will return it."""
        text = canonical_json(value)
        await self._finish(record, state="done", result=text)
        return value if type(value) in _JSON_STABLE_TYPES else json.loads(text)

    async def _fail(self, record: CallRecord, error: WorldAgentError) -> NoReturn:
        await self._finish(_failed(record, error))
        raise error

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _put(self, record: CallRecord) -> None:
        if self._journal is not None:
            await self._journal.put(self._with_unwritten(record), lease=self._lease, also=self.also)

    async def _finish(self, record: CallRecord, **over: Any) -> None:
        """Write how a call ended, under the epoch of this owner."""
        if self._journal is not None:
            record = replace(record, **over, epoch=self._epoch)
            await self._journal.finish(self._with_unwritten(record), lease=self._lease, also=self.also)

    def _with_unwritten(self, record: CallRecord) -> list[CallRecord]:
        """Return the record, preceded by the records of its callers that were not written yet."""
        above = []
        parent = self._unwritten.get(record.parent)
        while parent is not None:
            above.append(parent)
            parent = self._unwritten.get(parent.parent)
        for written in (*above, record):
            self._unwritten.pop(written.id, None)
        self._records[record.id] = record
        return [*reversed(above), record]


def _model_influenced_bodies(records: Iterable[CallRecord], thinkers: Collection[str]) -> set[str]:
    """Return the calls that a model influenced: they called a model, or they got the result of such a call."""
    found: set[str] = set()
    for record in sorted(records, key=lambda record: record.id.count("/"), reverse=True):  # deepest first
        if record.kind in ("model", "reply") or record.name in thinkers or (record.over and record.id in found):
            found.add(record.parent)
    return found


def _validation_error(check: Callable[[Any], object], arguments: Any) -> str:
    try:
        check(arguments)
    except (AnswerInvalid, ParamsInvalid) as error:
        return error.problem
    return ""


def _with_read(record: CallRecord, step: Step) -> CallRecord:
    """The record with the marks of the places that the step has read, beside the decision about it."""
    said = record.recorded_decision
    if not step.read or said is None:
        return record
    result = {**said.get("result", {}), "read": sorted(step.read)}
    return replace(record, gate=canonical_json({**said, "result": result}))


def _failed(record: CallRecord, error: WorldAgentError) -> CallRecord:
    error_fields = {"code": error.code, "problem": error.problem, "remedy": error.remedy}
    return replace(record, state="failed", result=canonical_json(error_fields))


def _given(record: CallRecord) -> Any:
    value: Any = None if record.result is None else json.loads(record.result)
    if record.state == "done":
        return value
    raise WorldAgentError.kind_of(value["code"])(value["problem"], remedy=value["remedy"])
