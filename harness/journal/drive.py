"""One owner's run at a turn's calls: what is recorded is given again, what is new runs, what needs leave waits (D8).

`start`, `resume` and recovery after a crash are one thing: the bodies run from the top, and the journal answers for
what was done before. This module decides about one call; how a body's calls are held in order is in `frame`. It knows
no graph, no model and no role: whoever hands a step in says what stands for the role it got.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from types import NoneType
from typing import Any, Final, NoReturn

from ...core import Clock, canonical_json
from ...core.errors import (
    AnswerInvalid,
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
from ...storage import Lease
from ..limits import TurnLimitReached
from .records import CallRecord, Journal
from .steps import SUSPENDED, Ask, Step, Suspended

_UNBEGUN: Final = 0
"""The epoch of a call that was under way and surely did nothing; an owner's is 1 or more."""

_RUN: Final = object()
"""Returned by `_admit` for a step that may run, since None is a valid result."""

UNATTENDED: Final = "unattended"
"""What the gate's records name as the decider where an unattended turn refuses instead of asking."""

_SAME: Final = frozenset({bool, int, str, NoneType})
"""What is read from JSON as it was written."""

ABOUT_THE_TURN = (
    Diverged,
    EffectUncertain,
    RoleChanged,
    LeaseLost,
    StorageUnavailable,
    StorageInvalid,
    TurnLimitReached,
)
"""Errors that end a turn's run wherever they come up: no call, task or plan is told of them."""


class Drive:
    """One owner's run at one turn.

    Args:
        turn: The turn's id.
        records: What the journal has of it.
        journal: Where calls are kept; None keeps nothing, and asks nobody.
        lease: The ownership of the turn's thread.
        clock: Tells the time.
        thinkers: The names of tasks that are a model's work through and through.

    Attributes:
        stopping: Whether nothing new may begin: the turn is to stop where it can go on later.
        refreshed: Whether calls may get another role than they got at first.
        unattended: What happens where a person would be asked; None asks them.
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
    ) -> None:
        self.turn = turn
        self.stopping = False
        self.refreshed = False
        self.unattended: UnattendedMode | None = None
        self._records = records if records is not None else {}
        # Each call asks for what is below it. To look through all calls for that would cost the square of them.
        self._below: dict[str, list[CallRecord]] = {}
        for record in self._records.values():
            self._below.setdefault(record.parent, []).append(record)
        self._heard = _heard(self._records.values(), thinkers)
        self._journal = journal
        self._lease = lease
        self._epoch = lease.epoch if lease is not None else 0
        self._clock = clock
        self._unwritten: dict[str, CallRecord] = {}
        self._told: dict[str, CallRecord] = {}
        self._settling = asyncio.Lock()

    def now(self) -> datetime:
        """The time by the turn's clock."""
        return self._clock.now()

    def recorded(self, step_id: str) -> CallRecord | None:
        """What the journal has of a call."""
        return self._records.get(step_id)

    def recorded_below(self, parent: str) -> tuple[CallRecord, ...]:
        """The calls that `parent` made before this run."""
        return tuple(self._below.get(parent, ()))

    def hears(self, path: str) -> None:
        """A model has had a say in what the body of this call does and gives."""
        self._heard.add(path)

    def heard(self, path: str) -> bool:
        """Whether a model has had a say in what the body of this call does and gives."""
        return path in self._heard

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked: an answer would find what waits for it."""
        return self._journal is not None

    @property
    def left(self) -> tuple[str, ...]:
        """The answered pauses that nobody has asked for again."""
        return tuple(record.id for record in self._records.values() if record.answered)

    async def run(self, step: Step) -> Any:
        """Do a step, or give what the journal has of it.

        Returns:
            Its result as JSON, or `SUSPENDED`.

        Raises:
            Diverged: Something else was recorded under its id.
            RoleChanged: It was given another role when it was recorded.
            NobodyToAsk: A person would have to be asked, and nothing is kept that an answer could find.
            WorldAgentError: What the step itself raised, now or then.
        """
        record = self._recall(step)
        if record.over:
            return _given(record)
        if step.refusal is not None:
            # A recorded question must have what was asked, also where it is refused.
            ask = step.ask.json() if step.kind == "question" and step.ask is not None else record.ask
            return await self._fail(replace(record, gate=step.gate, ask=ask), step.refusal)
        record, outcome = await self._admit(step, record)
        if outcome is not _RUN:
            return outcome
        if step.kind == "question":
            return await self._answered(step, record)
        if step.slot is None:
            return await self._begin(step, record)
        async with step.slot:
            return await self._begin(step, record)

    async def keep(self, step: Step, value: Any) -> Any:
        """Record a step that is done by now, also where the turn is to stop; its body is not run.

        Args:
            step: The step.
            value: What it gave, as JSON.

        Returns:
            Its result as JSON: what the journal has of it, where it was recorded before.
        """
        record = self._recall(step)
        return _given(record) if record.over else await self._done(record, value)

    def refuses(self, call_id: str) -> bool:
        """Whether the turn is unattended and refuses where a person would be asked before this call."""
        record = self._records.get(call_id)
        asked = record is not None and (record.open or record.answered) and record.ask is not None
        return self.unattended == "refuse" and not asked

    async def settle(self, parent: str) -> None:
        """Record the passing failures below `parent`: its body went on after them, so a replay must see them again."""
        if not self._told and not self._settling.locked():
            return
        async with self._settling:  # nobody goes on before what a branch beside it records is there
            for record in [record for record in self._told.values() if record.parent == parent]:
                del self._told[record.id]
                await self._finish(record)

    # --- what is recorded -------------------------------------------------------------------------------------------

    def _recall(self, step: Step) -> CallRecord:
        found = self._records.get(step.id)
        stands_for = step.hash
        if found is None:
            made = CallRecord(
                id=step.id,
                turn=self.turn,
                parent=step.parent,
                name=step.name,
                kind=step.kind,
                hash=stands_for,
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
        if (found.hash, found.name) != (stands_for, step.name):
            raise Diverged(
                f"the call {step.id!r} was recorded with another input",
                remedy="let the body ask for the same in the same order each time, or start a new turn",
            )
        if found.role != step.role and not self.refreshed:
            raise RoleChanged(
                f"the call {step.id!r} was given another role when the turn began",
                remedy="give the same role again, or resume with `on_role_change` as `refresh`",
            )
        return self._asked_after_all(found) if found.state == "withdrawn" else found

    def _asked_after_all(self, found: CallRecord) -> CallRecord:
        """What was withdrawn needs a person's word as before, should anybody ask for it again."""
        lost = json.loads(found.ask or "{}").get("kind") == "uncertain"
        found = replace(found, state="started" if lost else "waiting", decision=None)
        self._records[found.id] = self._unwritten[found.id] = found
        return found

    # --- leave ------------------------------------------------------------------------------------------------------

    async def _admit(self, step: Step, record: CallRecord) -> tuple[CallRecord, Any]:
        """Check whether the step may run now; returns its record with `_RUN`, or with the result it has instead."""
        lost = record.state == "started" and record.epoch not in (self._epoch, _UNBEGUN) and step.once
        if lost or record.state == "uncertain":
            return await self._uncertain(step, record)
        if record.state != "waiting":
            return record, _RUN
        decision = record.decided
        if decision is None and record.late(self._clock.now()):
            decision = {"kind": "expired"}
        match decision:
            case None if step.ask is not None:  # else leave is no longer needed; what a person said counts all the same
                return record, await self._waits(step, record)
            case {"kind": "approve"} if step.kind != "question":
                return await self._let(step, record, decision)
            case {"kind": "reject", "reason": reason}:
                return record, await self._fail(
                    self._told_of(step, record, "reject", decision),
                    CallRefused(
                        f"a person refused the call of {step.name!r}" + (f": {reason}" if reason else ""),
                        remedy="do without it, or ask for something else",
                    ),
                )
            case {"kind": "expired"}:
                return record, await self._fail(
                    self._told_of(step, record, "refuse", {}),
                    PauseExpired(f"nobody answered {step.name!r} in time", remedy="do without it, or ask again"),
                )
            case _:
                return record, _RUN

    async def _let(self, step: Step, record: CallRecord, decision: dict[str, Any]) -> tuple[CallRecord, Any]:
        """A person gives leave; what may not be, or is something else by now, leaves the question open."""
        arguments, ask = decision.get("arguments"), step.ask
        if ask is not None:
            problem = ask.outdated(json.loads(record.ask or "{}"), decision.get("account"))
            if not problem and arguments is not None and step.check is not None:
                problem = _misfit(step.check, arguments)
            if problem:
                ask = step.ask or ask  # the check may have said there why not
                await self._put(replace(record, decision=None, ask=ask.json(problem)))
                return record, SUSPENDED
        return self._told_of(step, record, "approve" if arguments is None else "modify", decision), _RUN

    def _told_of(self, step: Step, record: CallRecord, decision: str, said: dict[str, Any]) -> CallRecord:
        """The record with what a person decided, or that nobody did in time, in words that outlive the answer."""
        return record if step.noted is None else replace(record, gate=step.noted(decision, said))

    async def _waits(self, step: Step, record: CallRecord) -> Suspended:
        assert step.ask is not None
        if self._journal is None:
            raise NobodyToAsk(
                f"{step.name!r} asks a person, and this call is outside any turn",
                remedy="call it inside a turn, which can wait for the answer",
            )
        if record.id in self._unwritten:
            seconds = step.ask.seconds
            expires = None if seconds is None else self._clock.now().timestamp() + seconds
            await self._put(replace(record, ask=step.ask.json(), expires=expires))
        return SUSPENDED

    async def _uncertain(self, step: Step, record: CallRecord) -> tuple[CallRecord, Any]:
        """What was under way when its owner stopped may have happened or not; a person says which (T5)."""
        match record.decided if record.state == "uncertain" else None:
            case {"kind": "happened", "value": value}:
                return record, await self._done(record, value)
            case {"kind": "lost"}:
                return record, await self._fail(
                    record,
                    EffectLost(f"the call of {record.name!r} was cut off before it happened", remedy="make it again"),
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
                f"the call {record.id!r} of {record.name!r} was under way when a process ended and may have had its "
                "effect",
                remedy="find out whether it did, then resume the turn with Happened(result), NotHappened() or "
                "RunAgain() as the answer to the call's id",
            )
        return record, SUSPENDED

    async def _answered(self, step: Step, record: CallRecord) -> Any:
        """Read the answer to a question; one that the asker does not take leaves the question open."""
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
        if self.stopping:
            return SUSPENDED
        if (step.once or step.ask is not None) and self._journal is not None:
            record = replace(record, state="started", epoch=self._epoch)
            await self._put(record)
        return await self._do(step, record)

    async def _do(self, step: Step, record: CallRecord) -> Any:
        try:
            value = await step.body(record.let)
        except NobodyToAsk as error:
            if not self.can_ask:
                raise
            failure: WorldAgentError = _unasked(step, error)  # in a turn somebody can be asked: it is the body's own
        except ABOUT_THE_TURN:
            raise
        except HostError as error:
            if error.retryable:  # it may go well next time, unless the caller goes on without it: see `settle`
                if step.once and error.unsent == record.id:
                    await self._put(replace(record, epoch=_UNBEGUN))
                self._told[record.id] = _failed(record, error)
                raise
            failure = error
        except WorldAgentError as error:
            failure = error
        else:
            if value is SUSPENDED:
                return SUSPENDED
            return await self._done(record, value)
        return await self._fail(record, failure)

    async def _done(self, record: CallRecord, value: Any) -> Any:
        """Record a result; gives it as a replay will get it."""
        text = canonical_json(value)
        await self._finish(record, state="done", result=text)
        return value if type(value) in _SAME else json.loads(text)

    async def _fail(self, record: CallRecord, error: WorldAgentError) -> NoReturn:
        await self._finish(_failed(record, error))
        raise error

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _put(self, record: CallRecord) -> None:
        if self._journal is not None:
            await self._journal.put(self._with_unwritten(record), lease=self._lease)

    async def _finish(self, record: CallRecord, **over: Any) -> None:
        """Write how a call ended; where it is written, it is this owner's."""
        if self._journal is not None:
            record = replace(record, **over, epoch=self._epoch)
            await self._journal.finish(self._with_unwritten(record), lease=self._lease)

    def _with_unwritten(self, record: CallRecord) -> list[CallRecord]:
        """The record after those of its callers that were not worth a write of their own."""
        above = []
        parent = self._unwritten.get(record.parent)
        while parent is not None:
            above.append(parent)
            parent = self._unwritten.get(parent.parent)
        for written in (*above, record):
            self._unwritten.pop(written.id, None)
        self._records[record.id] = record
        return [*reversed(above), record]


def _heard(records: Iterable[CallRecord], thinkers: Collection[str]) -> set[str]:
    """The calls in which a model had a say: those that asked one, and those that got what such a call gave."""
    found: set[str] = set()
    for record in sorted(records, key=lambda record: record.id.count("/"), reverse=True):  # from the leaves up
        if record.kind == "model" or record.name in thinkers or (record.over and record.id in found):
            found.add(record.parent)
    return found


def _misfit(check: Callable[[Any], object], arguments: Any) -> str:
    try:
        check(arguments)
    except (AnswerInvalid, ParamsInvalid) as error:
        return error.problem
    return ""


def _unasked(step: Step, error: WorldAgentError) -> TaskFailed:
    return TaskFailed(f"{step.name!r} failed: {error.problem}", remedy=error.remedy)


def _failed(record: CallRecord, error: WorldAgentError) -> CallRecord:
    told = {"code": error.code, "problem": error.problem, "remedy": error.remedy}
    return replace(record, state="failed", result=canonical_json(told))


def _given(record: CallRecord) -> Any:
    value: Any = None if record.result is None else json.loads(record.result)
    if record.state == "done":
        return value
    raise WorldAgentError.kind_of(value["code"])(value["problem"], remedy=value["remedy"])
