"""The schedules of an agent: stored with its threads, and fired while a process runs them (T7).

A slot is taken up in one transaction, which also writes its run. What it starts has the key `ID@SLOT`, so a run that
is begun again after a kill is one turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from ..agent import Thread, Trigger, TurnStream, WorldAgent
from ..agent.requests import Scheduled
from ..agent.runtime.inside import inside
from ..agent.runtime.stale import Stale, end_stale, find_stale
from ..agent.starts import StartMessage, StartSkill, StartTask, request_of
from ..agent.thread import with_marks
from ..agent.threads import ThreadState
from ..core import Scope, canonical_json, digest
from ..core.errors import AgentClosed, NothingToResume, ScheduleInvalid, ThreadBusy, ThreadPaused, WorldAgentError
from ..core.validation import check_integer
from ..harness.inside import Inside
from ..memory import thread_key
from ..memory.schedules import Change, RunStatus, ScheduleRows, ScheduleRun, StoredSchedule
from .policies import MAX_WAIT_SECONDS, DueSlots, due_slots, overlap_action, seconds_to_next
from .schedule import Schedule, StartEvent, StartTarget
from .slots import Slot

KEPT_RUNS: Final = 1000
"""How many runs of a schedule its history keeps."""

_LOG: Final = logging.getLogger("worldagent.schedules")
_ENDED: Final[Mapping[str, RunStatus]] = {"done": "done", "paused": "paused", "cancelled": "cancelled"}


class Target(Protocol):
    """Something that a schedule starts in place of a turn, such as an event; pass it in `Schedules(targets=...)`."""

    async def fire(self, schedule: Schedule, slot: Slot, payload: Any) -> None:
        """Start it. It is called again for the same slot only if the process that called it has died.

        Args:
            schedule: The schedule.
            slot: The slot; `schedule.key(slot)` tells it from all others.
            payload: The payload that the schedule has for it.
        """
        ...


class Schedules:
    """The schedules of an agent's workspace. `async with schedules.running():` fires them while the block runs.

    Args:
        agent: The open agent. Its clock decides when a slot is due.
        targets: What schedules can start besides turns, by name.
    """

    def __init__(self, agent: WorldAgent, *, targets: Mapping[str, Target] | None = None) -> None:
        self._agent = agent
        self._targets = dict(targets or {})
        self._changed = asyncio.Event()
        self._following: set[asyncio.Task[None]] = set()

    @property
    def workspace(self) -> str:
        """The workspace of the schedules."""
        return self._agent.workspace

    @property
    def _rows(self) -> ScheduleRows:
        return inside(self._agent).stores.schedules

    # --- management -------------------------------------------------------------------------------------------------

    async def add(self, schedule: Schedule) -> None:
        """Store a schedule. Its first slot is the next one from now.

        Raises:
            NameTaken: The workspace has a schedule with this id.
            ScheduleInvalid: It is not a `Schedule`, belongs to another workspace, has no slot left, or names a target
                that is unknown here.
            UnknownShape, ParamsInvalid, InvalidArgument: What it starts does not exist, or its input is invalid.
            LimitReached: Its account, or the workspace, has too many or stores too much today.
        """
        if not isinstance(schedule, Schedule):
            raise ScheduleInvalid(
                f"`schedule` must be a Schedule, got a {type(schedule).__name__}",
                remedy="make one with Schedule(...), or with Schedule.from_json(...)",
            )
        within = Inside.now()
        if within is not None:
            schedule = replace(schedule, untrusted=tuple(sorted({*schedule.untrusted, *within.origin.marks})))
        now = inside(self._agent).clock.now()
        if schedule.workspace != self._agent.workspace:
            raise ScheduleInvalid(
                f"the schedule {schedule.id!r} is for the workspace {schedule.workspace!r}",
                remedy=f"add it to the agent of that workspace; this one is {self._agent.workspace!r}",
            )
        if next(schedule.slots(now), None) is None:
            raise ScheduleInvalid(f"the schedule {schedule.id!r} never fires from now on", remedy="give a later time")
        self._check(schedule)
        await self._check_thread(schedule)
        body = schedule.to_json()
        scope = Scope(workspace=schedule.workspace, account=schedule.account)
        await inside(self._agent).parts.usage.store(scope, size=len(canonical_json(body).encode()))
        await self._rows.add(schedule.workspace, schedule.id, body, now)
        self._changed.set()

    async def list(self) -> tuple[Schedule, ...]:
        """All schedules of the workspace, by id."""
        return tuple(Schedule.from_json(each.body) for each in await self._rows.list(self._agent.workspace))

    async def get(self, schedule_id: str) -> Schedule:
        """One schedule.

        Raises:
            UnknownSchedule: There is none with this id.
        """
        return Schedule.from_json((await self._rows.get(self._agent.workspace, schedule_id)).body)

    async def next_slot(self, schedule_id: str) -> Slot | None:
        """The next slot of a schedule; None if it has none left.

        Raises:
            UnknownSchedule: There is no schedule with this id.
        """
        schedule = await self.get(schedule_id)
        return next(schedule.slots(inside(self._agent).clock.now()), None)

    async def pause(self, schedule_id: str, *, paused: bool = True) -> None:
        """Skip the slots of a schedule from now on, or with `paused=False` fire them again.

        Raises:
            UnknownSchedule: There is no schedule with this id.
        """

        def work(stored: StoredSchedule) -> Change:
            schedule, now = Schedule.from_json(stored.body), inside(self._agent).clock.now()
            due = due_slots(replace(schedule, paused=True), handled=stored.handled, now=now) if not paused else None
            handled = stored.handled if due is None else due.handled  # what it slept through stays skipped
            return Change(body=replace(schedule, paused=paused).to_json(), handled=handled)

        await self._change(schedule_id, work)
        self._changed.set()

    async def remove(self, schedule_id: str) -> None:
        """Remove a schedule and its history. Turns that it started stay, and one that runs continues.

        Raises:
            UnknownSchedule: There is no schedule with this id.
        """
        await self._rows.remove(self._agent.workspace, schedule_id)

    async def history(self, schedule_id: str, *, limit: int = 50) -> tuple[ScheduleRun, ...]:
        """The newest runs of a schedule, newest first.

        Raises:
            UnknownSchedule: There is no schedule with this id.
            InvalidArgument: `limit` is not a number from 1 to 1000.
        """
        check_integer("limit", limit, KEPT_RUNS, remedy="ask for fewer")
        await self.get(schedule_id)
        return await self._rows.runs(self._agent.workspace, schedule_id, limit)

    async def run_now(self, schedule_id: str) -> ScheduleRun:
        """Fire a schedule once now, also if it is paused, and return its run once that has started or was skipped.

        Raises:
            UnknownSchedule: There is no schedule with this id.
        """
        slot, now = Slot(inside(self._agent).clock.now()), inside(self._agent).clock.now()
        run = ScheduleRun(schedule=schedule_id, slot=slot.id, status="due", at=now)

        def work(stored: StoredSchedule) -> Change:
            return Change(body=stored.body, handled=stored.handled, runs=(run,))

        schedule = Schedule.from_json((await self._change(schedule_id, work)).body)
        await self._advance(schedule)
        found = {each.slot: each for each in await self._rows.runs(schedule.workspace, schedule.id, KEPT_RUNS)}
        return found[slot.id]

    async def settled(self) -> None:
        """Wait until the runs that began here have ended, or wait for a person."""
        while self._following:
            await asyncio.wait(self._following)

    # --- running ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Fire the schedules while the block runs. Turns that began in it continue when it ends."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run(self) -> None:
        """Fire the schedules until this is cancelled. Several processes can do so on one database."""
        try:
            while True:
                self._changed.clear()
                seconds = await self.fire_due()
                await self._sleep(seconds)
        finally:
            for task in self._following:
                task.cancel()

    async def fire_due(self) -> float:
        """Fire what is due now, and return the seconds after which to look again.

        A failure of one schedule is logged and does not keep the others from firing.
        """
        wait = MAX_WAIT_SECONDS
        await end_stale(inside(self._agent).parts, self._agent.workspace)
        for stored in await self._rows.list(self._agent.workspace):
            try:
                schedule = Schedule.from_json(stored.body)
                change = await self._change(schedule.id, self._take_up)
                await self._advance(schedule)
            except WorldAgentError as error:
                _LOG.warning("the schedule %r: %s", stored.id, error)
                continue
            clock = inside(self._agent).clock
            seconds = seconds_to_next(schedule, handled=change.handled, clock=clock)
            wait = wait if seconds is None else min(wait, seconds)
        return wait

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not after a schedule was added or changed here."""
        waits = {
            asyncio.ensure_future(inside(self._agent).clock.sleep(seconds)),
            asyncio.ensure_future(self._changed.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _take_up(self, stored: StoredSchedule) -> Change:
        schedule, now = Schedule.from_json(stored.body), inside(self._agent).clock.now()
        due = due_slots(schedule, handled=stored.handled, now=now)
        return Change(body=stored.body, handled=due.handled, runs=_runs(schedule, due, now))

    async def _advance(self, schedule: Schedule) -> None:
        """Look after the runs of a schedule that are not over: start them, resume them, or note how they ended."""
        runs = await self._rows.open_runs(schedule.workspace, schedule.id)
        for run in runs:
            if run.turn:
                await self._look_after(schedule, run)
            elif not await self._start(schedule, run):
                return  # the later ones wait, too
        if runs:
            await self._rows.prune(schedule.workspace, schedule.id, KEPT_RUNS)

    async def _start(self, schedule: Schedule, run: ScheduleRun) -> bool:
        """Start a run; False if it has to wait."""
        if isinstance(schedule.starts, StartTarget):
            return await self._fire_target(schedule, schedule.starts, run)
        if isinstance(schedule.starts, StartEvent):
            return await self._post(schedule, schedule.starts, run)
        return await self._start_turn(schedule, run)

    async def _start_turn(self, schedule: Schedule, run: ScheduleRun) -> bool:
        """Start the turn of a run by the overlap policy; False if it has to wait."""
        thread = self._thread(schedule)
        # A run that was claimed and not begun is begun at once: its key makes it one turn.
        action = "start" if run.status != "due" else await self._claimed(schedule, run, thread)
        if action != "start":
            return action == "skip"
        # Interrupted runs of this schedule were resumed before; one that still is interrupted is none of them.
        try:
            stream = self._stream(schedule, run, thread)
        except WorldAgentError as error:  # a skill or a shape is gone
            await self._set(run, "failed", note=_described(error))
            return True
        return await self._begin(schedule, run, stream)

    async def _claimed(self, schedule: Schedule, run: ScheduleRun, thread: Thread) -> Literal["start", "skip", "queue"]:
        """Decide about a run by the overlap policy, and claim it: it starts, is skipped, or waits."""
        state = await thread.state()
        ended = await self._ended_before_its_answer(schedule, state)
        found = await self._stale(thread)
        if found is not None and found.may_end and found.turn.stale is not None:
            state = None  # its run has failed, and the turn that begins now ends it
        action = "start" if ended is not None else overlap_action(state, schedule.overlap)
        own, note = await self._not_over(schedule, state)
        if action == "queue":
            await self._queued(schedule, run, state, note)
            return "queue"
        if action == "skip" or (action == "cancel-older" and not own):
            if await self._rows.claim(schedule.workspace, run, "skipped", note=note):
                _alarm(state, "the schedule %r skips the slot %s: %s", schedule.id, run.slot, note)
            return "skip"
        if not await self._rows.claim(schedule.workspace, run, "started"):
            return "skip"  # another process has it
        if ended is not None:
            said = (schedule.id, run.slot, ended.slot, ended.note)
            _LOG.warning("the schedule %r continues with the slot %s; %s failed: %s", *said)
            await thread.cancel()
        elif action == "cancel-older":
            await self._cancel_earlier(schedule, thread)
        return "start"

    async def _queued(self, schedule: Schedule, run: ScheduleRun, state: ThreadState | None, note: str) -> None:
        if run.note != note:
            _alarm(state, "the schedule %r queues the slot %s: %s", schedule.id, run.slot, note)
            await self._set(run, "due", note=note)

    async def _cancel_earlier(self, schedule: Schedule, thread: Thread) -> None:
        await thread.cancel()
        for earlier in await self._rows.open_runs(schedule.workspace, schedule.id):
            if earlier.turn:
                await self._set(earlier, "cancelled")

    async def _not_over(self, schedule: Schedule, state: ThreadState | None) -> tuple[bool, str]:
        """Whether the newest turn of the thread is a run of the schedule, and what a slot that waits for it says."""
        if state is None:
            return False, ""
        runs = await self._rows.open_runs(schedule.workspace, schedule.id)
        slot = next((each.slot for each in runs if each.turn == state.turn_id), None)
        if slot is None:
            return False, "the thread has a turn that the schedule did not start"
        return True, f"the run of {slot} {'waits for a person' if state.pauses else 'is not over'}"

    async def _ended_before_its_answer(self, schedule: Schedule, state: ThreadState | None) -> ScheduleRun | None:
        """The run whose turn failed with a question that no person will answer, such as whether an effect happened.

        With `unattended="refuse"` such a turn is over (T13), and the next slot does not wait for it. Its run says why.
        """
        if state is None or state.status != "failed" or not state.pauses or state.unattended == "pause":
            return None
        runs = await self._rows.runs(schedule.workspace, schedule.id, KEPT_RUNS)
        return next((each for each in runs if each.turn == state.turn_id), None)

    async def _look_after(self, schedule: Schedule, run: ScheduleRun) -> None:
        """Note how a run ended that another process began, or resume it if that process has ended."""
        if any(task.get_name() == _name(schedule, run) for task in self._following):
            return
        thread = self._thread(schedule)
        state = await thread.state()
        if state is None or state.turn_id != run.turn:
            turn = await inside(self._agent).stores.turns.get(run.turn or "")
            became: RunStatus = "done" if turn is None else _ENDED.get(turn.status, "failed")
            await self._set(run, became, note="a later turn of the thread has begun")
        elif state.status != "done" and (found := await self._stale(thread)) is not None:
            if found.may_end:
                await self._give_up(schedule, run, found)
        elif state.status in ("stopped", "cut_off"):
            await self._begin(schedule, run, thread.stream_resume(detach=True))
        elif state.status != "running":
            turn = await inside(self._agent).stores.turns.get(state.turn_id)
            note = None if turn is None or turn.status != "failed" else turn.code
            await self._set(run, _ENDED.get(state.status, "failed"), note=note)

    async def _stale(self, thread: Thread) -> Stale | None:
        return await find_stale(inside(self._agent).parts, thread.scope)

    async def _give_up(self, schedule: Schedule, run: ScheduleRun, found: Stale) -> None:
        """Fail a run whose turn can never resume, and tell people. The next slot ends the turn."""
        text = f"The run {run.slot} of the schedule {schedule.id} can never resume."
        _LOG.warning("the run %s of the schedule %r can never resume: %s", run.slot, schedule.id, found.error.code)
        for tell in inside(self._agent).hooks.stuck:
            await tell(f"schedule.{digest([schedule.id, run.slot])}.stuck", text, found.error)
        await inside(self._agent).stores.turns.note_stale(found.turn.id)
        await self._set(run, "failed", note=_described(found.error))

    async def _begin(self, schedule: Schedule, run: ScheduleRun, stream: TurnStream) -> bool:
        try:
            async with stream:
                if stream.turn_id:  # else the start failed, and leaving the block raises its error
                    await self._set(run, "started", turn=stream.turn_id)
        except (ThreadBusy, ThreadPaused, NothingToResume):
            if not run.turn:
                await self._set(run, "due")  # a turn came in between: the policy decides again
            return False
        except WorldAgentError as error:
            await self._set(run, "failed", note=_described(error))
            return True
        task = asyncio.create_task(self._follow(schedule, run, stream), name=_name(schedule, run))
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        return True

    async def _follow(self, schedule: Schedule, run: ScheduleRun, stream: TurnStream) -> None:
        try:
            turn = await stream.wait()
            await self._set(run, _ENDED.get(turn.status, "failed"))
        except AgentClosed:
            return  # the turn was stopped with the agent: the next process resumes it
        except WorldAgentError as error:
            await self._set(run, "failed", note=_described(error))
        self._changed.set()  # a run that waits can start

    async def _fire_target(self, schedule: Schedule, starts: StartTarget, run: ScheduleRun) -> bool:
        """Call a target; False if another process is calling one of this schedule.

        A target has no key that would make two calls one. So the caller holds a lease, and another process calls it
        again only if the caller has died.
        """
        key = f"{thread_key(self._thread(schedule).scope)}@target"
        try:
            async with inside(self._agent).stores.leases.hold(key, wait=0):
                open_runs = await self._rows.open_runs(schedule.workspace, schedule.id)
                if run.slot in [each.slot for each in open_runs]:
                    await self._set(run, "started")
                    await self._call_target(schedule, starts, run)
        except ThreadBusy:
            return False
        return True

    async def _post(self, schedule: Schedule, starts: StartEvent, run: ScheduleRun) -> bool:
        """Post an event. Its id makes it one, whichever process posts it, and however often."""
        slot = Slot.parse(run.slot)
        event = {
            "id": schedule.key(slot),
            "type": starts.event,
            "source": starts.source,
            "domain": starts.domain,
            "payload": starts.payload,
            "timestamp": slot.at,
            **({"metadata": {"untrusted": [*schedule.untrusted]}} if schedule.untrusted else {}),
        }
        try:
            self._agent.society  # noqa: B018 -- it raises if there is none
            for post in inside(self._agent).hooks.post:
                await post(event, starts.to)
        except WorldAgentError as error:
            if error.retryable:
                raise
            await self._set(run, "failed", note=_described(error))
        else:
            await self._set(run, "done")
        return True

    async def _call_target(self, schedule: Schedule, starts: StartTarget, run: ScheduleRun) -> None:
        target = self._targets.get(starts.target)
        if target is None:
            note = f"there is no target {starts.target!r} in this process"
            await self._set(run, "failed", note=note)
            return
        try:
            await target.fire(schedule, Slot.parse(run.slot), starts.payload)
        except Exception as error:  # a target is the host's own code, and can raise anything
            _LOG.exception("the target %r of the schedule %r failed", starts.target, schedule.id)
            await self._set(run, "failed", note=type(error).__name__)
        else:
            await self._set(run, "done")

    def _stream(self, schedule: Schedule, run: ScheduleRun, thread: Thread) -> TurnStream:
        slot = Slot.parse(run.slot)
        how: dict[str, Any] = {"key": schedule.key(slot), "detach": True, "unattended": schedule.unattended or True}
        how["guard"] = schedule.guard
        match schedule.starts:
            case StartMessage(message=message, inputs=inputs):
                trigger = Trigger(schedule=schedule.id, fired_at=slot.at, payload={"message": message})
                return thread.stream(Scheduled(trigger, inputs=inputs, **how))
            case StartTask() | StartSkill() as start:
                return thread.stream(request_of(start, **how))
            case _:
                raise AssertionError("an event and a target start no turn")

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _thread(self, schedule: Schedule) -> Thread:
        thread = self._agent.thread(schedule.thread_id, account=schedule.account, tiers=schedule.tiers)
        return with_marks(thread, schedule.untrusted)

    def _check(self, schedule: Schedule) -> None:
        """Refuse what cannot be started, before anything is written."""
        starts = schedule.starts
        if isinstance(starts, StartTarget):
            if starts.target not in self._targets:
                known = ", ".join(sorted(self._targets)) or "none"
                raise ScheduleInvalid(
                    f"there is no target {starts.target!r} in this process", remedy=f"the targets are: {known}"
                )
            return
        if isinstance(starts, StartEvent):
            self._agent.society  # noqa: B018 -- refuses an agent without one
            return
        slot = Slot(inside(self._agent).clock.now())
        run = ScheduleRun(schedule=schedule.id, slot=slot.id, status="due", at=slot.at)
        self._stream(schedule, run, self._thread(schedule))  # it is not entered, so nothing starts

    async def _check_thread(self, schedule: Schedule) -> None:
        """Refuse a thread that a person uses. The schedule's own can have runs of an earlier schedule with its id."""
        state = await self._thread(schedule).state()
        if state is None or (schedule.thread is None and state.unattended is not None):
            return
        how = "give it another id" if schedule.thread is None else "omit `thread`"
        raise ScheduleInvalid(
            f"the thread {schedule.thread_id!r} of the schedule {schedule.id!r} is in use",
            remedy=f"{how}, so that the schedule has a thread of its own",
        )

    async def _change(self, schedule_id: str, work: Callable[[StoredSchedule], Change]) -> Change:
        return await self._rows.change(self._agent.workspace, schedule_id, work)

    async def _set(
        self, run: ScheduleRun, status: RunStatus, *, turn: str | None = None, note: str | None = None
    ) -> None:
        await self._rows.set_run(self._agent.workspace, run, status, turn=turn, note=note)


def _alarm(state: ThreadState | None, text: str, *given: object) -> None:
    """Log that a slot does not run. One that waits for a person can do so for ever, so that is a warning."""
    _LOG.log(logging.WARNING if state is not None and state.pauses else logging.INFO, text, *given)


def _name(schedule: Schedule, run: ScheduleRun) -> str:
    return f"{schedule.id}@{run.slot}"


def _described(error: WorldAgentError) -> str:
    return f"{error.code}: {error.problem}"[:500]


def _runs(schedule: Schedule, due: DueSlots, now: datetime) -> tuple[ScheduleRun, ...]:
    """The runs of slots that are due, and one for those that are skipped."""
    runs = [ScheduleRun(schedule=schedule.id, slot=slot.id, status="due", at=now) for slot in due.fires]
    if due.skipped is not None:
        count = due.skipped.count
        number = "more than 10,000" if count is None else str(count)
        why = "the schedule was paused" if schedule.paused else "they passed while nothing could fire them"
        note = f"{number} since {due.skipped.first.id}: {why}"
        runs.append(ScheduleRun(schedule=schedule.id, slot=due.skipped.last.id, status="skipped", at=now, note=note))
    return tuple(runs)
