"""The path of a turn: own its thread, resolve its role, append its message, run its graph, record its end, release.

New turns and resumed ones take the same path (`TurnPath.follow`); `begin` and `resume` are its steps before the graph.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from threading import Event
from traceback import clear_frames
from typing import Any, Final

from ...core import Emitter, Tier, canonical_json, new_id
from ...core.clock import uninterrupted
from ...core.errors import StorageUnavailable, ThreadPaused, WorldAgentError
from ...core.events import PauseNotified, PauseOpened, TextReplaced, TurnEnded
from ...core.pauses import Pause, pause_id_of
from ...graphs import TurnOutcome, TurnRequest
from ...harness.limits import Spent
from ...memory import OPEN, TurnRecord, TurnStatus, thread_key
from ...memory.branches import Branch
from ...memory.conversation import INTERRUPTS, Handed
from ...memory.examples import Examples
from ...memory.inbox import Inbox
from ...memory.reports import ReportTo, Said
from ...role_resolution import ResolvedRole
from ...storage import Known, Lease, Transaction
from ..recording import EmitEnd
from ..threads import end_left
from ..turns import Turn, TurnUsage, Withheld
from ..unattended import notify
from ..upkeep import Retention
from .branches import Again, Start
from .pending import INBOX_KEY, first_of
from .resume import resume
from .speaking import admitted, with_speaker
from .stale import give_up, to_give_up
from .versions import LEAST, check_version, this_version
from .work import (
    Begun,
    KeyBegun,
    NewTurn,
    NotFirst,
    ResumedTurn,
    RunnerParts,
    emit_started,
    handed_by,
    limited,
    unless_begun,
)

_SHOWN: Final = PauseOpened.model_fields.keys() & {each.name for each in fields(Pause)}
"""What an event shows of a pause, besides its id and the schema of its answer."""


@dataclass(slots=True)
class TurnPath:
    """One run of a turn.

    Attributes:
        parts: What the agent works with.
        turn_id: The turn's id.
        work: The turn to begin or to resume.
        emit: Where its events go.
        renamed: Is called with its new id, if another turn of the thread has begun since it got its id.
    """

    parts: RunnerParts
    turn_id: str
    work: NewTurn | ResumedTurn
    emit: Emitter
    renamed: Callable[[str], object]
    _stopped: bool = False  # interrupted by a drain, and recorded as stopped
    _kept_as: str = ""  # the thread that keeps the messages from before an edit
    _outputs: Mapping[str, Any] | None = None  # of its answer, as JSON
    _new_pauses: tuple[Pause, ...] = ()  # the pauses that this run has notified a person of

    async def follow(self) -> Turn:
        """Run the turn to its end or its next pause, and emit how that ended.

        Raises:
            KeyBegun: Another process runs the turn; nothing is emitted.
            NotFirst: The message does not begin it; nothing is emitted.
            WorldAgentError: The turn failed; the error carries the turn's id.
        """
        failure: WorldAgentError
        try:
            turn = await self._follow()
        except asyncio.CancelledError as error:
            clear_frames(error.__traceback__)
            if not self._stopped:
                self._end("cancelled")
                raise
            self._end("stopped")
            return Turn(id=self.turn_id, thread=self._thread, kept_as=self._kept_as, status="stopped")
        except (KeyBegun, NotFirst):
            raise
        except WorldAgentError as error:
            failure = error
        except (sqlite3.Error, OSError) as error:
            failure = StorageUnavailable(
                f"the agent's database failed with {type(error).__name__}", remedy="check the disk and try again"
            )
        except BaseException as error:  # tools can raise anything, SystemExit too; the stream must end
            clear_frames(error.__traceback__)
            self._end("failed", "internal")
            raise
        else:
            self._end(turn.status, text=turn.text, outputs=self._outputs if turn.outputs else None, labels=turn.labels)
            return turn
        finally:
            self.parts.starts.leave(self.turn_id)
            if isinstance(self.work, NewTurn):
                self.work.role = None  # set until the thread is owned, and the error keeps this frame
        # A caller that keeps the error keeps its frames, and they hold the turn's role and messages.
        clear_frames(failure.__traceback__)
        failure.turn_id = self.turn_id
        self._end("failed", failure.code)
        raise failure

    async def _follow(self) -> Turn:
        parts, work = self.parts, self.work
        async with AsyncExitStack() as owned:
            lease = await self._own(owned)
            if parts.hooks.around:
                await owned.enter_async_context(parts.around(work.scope.account))
            if isinstance(work, NewTurn):
                self._sort_last(lease)
                begun = await begin(parts, self.turn_id, work, lease, self.emit)
                self._kept_as = begun.kept_as
            else:
                found = await resume(parts, work, lease, self.emit)
                if isinstance(found, TurnOutcome):  # another process ended it while this one waited for the thread
                    return self._turn(found, tiers=work.record.sent_tiers)
                begun = found
            async with self._failures_recorded(begun):
                if isinstance(work, NewTurn) and work.loaded:
                    loaded, work.loaded = work.loaded, ()
                    await parts.stores.attachments.settle(loaded)
                    del loaded
                if begun.cancelled:
                    raise asyncio.CancelledError
                stop = partial(parts.engine.stop, self.turn_id)
                async with limited(parts.settings.turn_timeout, parts.stores.clock, stop):
                    outcome = await parts.engine.run(
                        begun.request, begun, asked=begun.record.asked, resumed=begun.resumed
                    )
                await self._notify(begun, outcome)
                await self._settled()
                lease.check()
            return await self._record(begun, outcome)

    @property
    def _thread(self) -> str:
        return self.work.scope.thread or ""

    def _end(self, status: str, code: str | None = None, **answer: Any) -> None:
        """Emit how the run ended, unless the event log has that event already and hands it out from there."""
        recording = self.work.recording
        if recording is None or not recording.finish(self.emit):
            emit_end(self.emit, status, code, **answer)

    # --- own --------------------------------------------------------------------------------------------------------

    async def _own(self, owned: AsyncExitStack) -> Lease:
        """Acquire the turn's thread until `owned` exits."""
        parts, work = self.parts, self.work
        async with parts.drain.refusing():
            if isinstance(work, NewTurn) and isinstance(work.branch, Again):
                scope, lease = await work.branch.claim(parts, owned)
                work.request = replace(work.request, scope=scope)
                return lease
            return await self._lease(owned)

    async def _lease(self, owned: AsyncExitStack) -> Lease:
        """Wait for the thread, unless another process begins the turn by its key, or resumes it, meanwhile."""
        parts, key = self.parts, thread_key(self.work.scope)

        def read(transaction: Transaction) -> Known:
            return {**parts.stores.turns.read(transaction, key), **parts.engine.read(transaction, key)}

        owning = parts.stores.leases.hold(key, wait=parts.settings.thread_wait, read=read)
        if not self.work.by_key:
            return await owned.enter_async_context(owning)
        async with unless_begun(self._is_begun):
            lease = await owned.enter_async_context(owning)
        if await self._is_begun():
            raise KeyBegun
        await self._check_first(lease)
        return lease

    def _sort_last(self, lease: Lease) -> None:
        """Take another id if that of the thread's newest turn is later: the newest turn of a thread is the last one.

        So it is if processes wait for a thread in another order than that of their ids, and if their clocks differ.
        """
        latest: TurnRecord | None = lease.known.get(TurnRecord)
        if latest is None or latest.id < self.turn_id:
            return
        self.turn_id = self.emit.turn_id = new_id("turn", after=latest.id)
        if self.work.recording is not None:
            self.work.recording.rename(self.turn_id)
        self.renamed(self.turn_id)

    async def _check_first(self, lease: Lease) -> None:
        """Make sure, now that the thread is owned, that a message of its inbox still is what begins the next turn.

        Raises:
            NotFirst: It is not, or a caller of this process waits for the thread, and comes first.
        """
        work, stores = self.work, self.parts.stores
        if isinstance(work, NewTurn) and work.inbox:
            key = work.request.thread_key
            found = first_of(await admitted(self.parts, await stores.inbox.unread(key), handed_by(lease)))
            if found is None or found.id != work.inbox or stores.leases.wanted(key):
                raise NotFirst

    async def _is_begun(self) -> bool:
        parts, work = self.parts, self.work
        if isinstance(work, ResumedTurn):
            now = await parts.stores.turns.get(self.turn_id)
            return now is None or (now.status, now.changed) != (work.record.status, work.record.changed)
        assert work.recording is not None, "a turn with a key is recorded"
        turn = work.recording.turn
        return await parts.recorder.log.find(turn.thread, turn.key or "") is not None

    # --- record -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _failures_recorded(self, begun: Begun) -> AsyncGenerator[None]:
        """Record the end of a run that has no outcome."""
        try:
            yield
        except asyncio.CancelledError:
            # A turn that did not stop within the drain's seconds can still be resumed later.
            self._stopped = await self._record_failure(begun, "stopped" if self._stops() else "cancelled")
            raise
        except WorldAgentError as error:
            await self._record_failure(begun, "failed", error.code)
            raise
        except (sqlite3.Error, OSError):  # the database accepts no write; once it does, the turn can be resumed
            raise
        except Exception:  # tools and handlers can raise anything; it is recorded and raised again
            await self._record_failure(begun, "failed", "internal")
            raise

    def _stops(self) -> bool:
        """Whether a cancelled run is resumed later: the agent is drained, or is closed and nobody waits for it."""
        drain, recording = self.parts.drain, self.work.recording
        key = None if recording is None else recording.turn.key
        return drain.begun or (drain.closed and key is not None and key.startswith(INBOX_KEY))

    async def _record_failure(self, begun: Begun, status: TurnStatus, code: str | None = None) -> bool:
        """Record a run that has no outcome; returns whether it is recorded as stopped."""
        try:
            await self._settled(patient=True)
            begun.lease.recover()
            record = await self._write_end(
                begun,
                status,
                lambda emit, status: emit_end(emit, status, code if status == "failed" else None),
                code=code,
            )
        except (WorldAgentError, asyncio.CancelledError):
            return False  # the caller gets the error that ended the run, not this one
        return record.status == "stopped"

    async def _record(self, begun: Begun, outcome: TurnOutcome) -> Turn:
        """Record the outcome of a run."""
        parts, role = self.parts, begun.role
        tiers = begun.sent_tiers if role.tiers or begun.resumed else ()
        turn = self._turn(outcome, tiers=tiers, skipped=begun.skipped)
        record = await self._write_end(
            begun,
            outcome.status,
            lambda emit, status: self._emit_outcome(emit, status, outcome, turn.text),
            also=parts.retention,
            outcome=outcome,
        )
        if record.status == "cancelled":  # the cancellation arrived before the outcome was written
            return Turn(id=record.id, thread=self._thread, kept_as=self._kept_as, status="cancelled")
        if outcome.status == "paused":
            end = parts.stores.clock.monotonic() + parts.settings.role_pin_ttl
            parts.pins.put(record.id, role, end=end)
        else:
            parts.pins.drop(record.id)
        if self.work.recording is None:
            self._emit_pauses(self.emit, outcome)
        return turn

    async def _write_end(
        self,
        begun: Begun,
        status: TurnStatus,
        emit_end_events: EmitEnd,
        *,
        code: str | None = None,
        also: Retention | None = None,
        outcome: TurnOutcome | None = None,
    ) -> TurnRecord:
        """Write the turn's end with its usage and, for a recorded turn, its last events."""
        parts, recording, writing = self.parts, self.work.recording, begun.use.writing()
        if recording is not None:
            recording.prepare_end(self.emit, status, emit_end_events)

        def each(transaction: Transaction, still_open: bool) -> None:
            writing(transaction, still_open)
            if begun.record.example and not still_open and status != "done":
                Examples.drop(transaction, "?", [begun.record.id], feedback=False)
            if recording is not None:
                recording.write_end(transaction, still_open)

        role = begun.sent_role if begun.role.tiers or begun.resumed else None
        said = None if begun.record.reports is None else _said(outcome, writing.spent)
        record = await parts.stores.turns.end(
            begun.record, status, code=code, role=role, lease=begun.lease, also=also, each=each, final=True, said=said
        )
        writing.done()
        if recording is not None:
            recording.end_written()
        if record.inbox and record.status not in ("paused", "stopped"):
            parts.unread(self.work.scope)
        if record.status == "cancelled":  # in this order: a withdrawn pause must not be asked again
            await parts.stores.journal.withdraw(record.id)
            parts.pins.drop(record.id)
        return record

    async def _notify(self, begun: Begun, outcome: TurnOutcome) -> None:
        """Notify the person that an unattended turn waits for, once for each new pause that a person can answer."""
        if begun.record.unattended is None:
            return
        parts = self.parts
        mine = (pause for pause in outcome.pauses if pause.kind != "reply")
        self._new_pauses = tuple(pause for pause in mine if pause.id not in begun.announced)
        on_error = parts.engine.services.on_error
        await notify(parts.notifier, self._new_pauses, clock=parts.stores.clock, on_error=on_error)

    async def _settled(self, *, patient: bool = False) -> None:
        """Wait until no event of the run is being written; the remaining ones are written with the turn's end."""
        if self.work.recording is not None:
            await self.work.recording.settled(patient=patient)

    def _emit_pauses(self, emit: Emitter, outcome: TurnOutcome) -> None:
        """Emit the turn's open pauses, and which of them a person was notified of."""
        for pause in outcome.pauses:
            shown = {name: getattr(pause, name) for name in _SHOWN}
            emit(PauseOpened, pause_id=pause.id, answer_schema=pause.schema, **shown)
        scope = self.work.scope
        for pause in self._new_pauses:
            emit(
                PauseNotified,
                pause_id=pause.id,
                kind=pause.kind,
                function=pause.function,
                thread=scope.thread or "",
                account=scope.account,
            )

    def _emit_outcome(self, emit: Emitter, status: TurnStatus, outcome: TurnOutcome, text: str) -> None:
        """Emit the outcome of a run; if the turn was cancelled at the last moment, emit only its end."""
        counts = status == outcome.status
        if counts:
            self._emit_pauses(emit, outcome)
        if counts and status == "done" and outcome.text and text and not emit.standing:
            emit(TextReplaced, text=text)  # an earlier run was interrupted after it had this text
        answer: dict[str, Any] = {"text": text, "outputs": outcome.outputs, "labels": outcome.labels} if counts else {}
        emit_end(emit, status, **answer)

    def _turn(self, outcome: TurnOutcome, *, tiers: tuple[Tier, ...], skipped: tuple[Tier, ...] = ()) -> Turn:
        self._outputs = outcome.outputs
        return Turn(
            id=self.turn_id,
            thread=self._thread,
            kept_as=self._kept_as,
            status=outcome.status,
            text=outcome.text or ("" if outcome.result is None else outcome.result.model_dump_json()),
            result=outcome.result,
            outputs=self.parts.engine.converse.read_outputs(outcome.outputs) if outcome.outputs else {},
            labels=outcome.labels,
            role_tiers=tiers,
            skipped_tiers=skipped,
            usage=TurnUsage.of(outcome.usage),
            withheld=Withheld(sum(outcome.withheld.values()), tuple(outcome.withheld)),
            pauses=outcome.pauses,
            recalled=outcome.recalled,
            roleless=outcome.roleless,
        )


def emit_end(
    emit: Emitter,
    status: str,
    code: str | None = None,
    *,
    text: str = "",
    outputs: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> None:
    """Emit how a run ended; without an answer, the text that was streamed so far is withdrawn."""
    if status != "done" and emit.standing:
        emit(TextReplaced, text="")
    emit(TurnEnded, status=status, code=code, text=text, outputs=outputs or {}, labels=labels or {})


def _said(outcome: TurnOutcome | None, spent: Spent) -> Said:
    """What a turn in the background reports."""
    if outcome is None:
        return Said(spent=spent)
    pauses = {pause.id: f"{pause.kind} of {pause.function}" for pause in outcome.pauses}
    return Said(text=outcome.roleless or "", marks=outcome.marks, pauses=pauses, spent=spent)


async def _with_fields(parts: RunnerParts, request: TurnRequest) -> TurnRequest:
    """Fill the inputs of capabilities that the caller left out."""
    given = request.body.get("inputs", {})
    made: dict[str, Any] = {}
    for each in parts.fields:
        if each.name not in given:
            made[each.name] = await each.fill(request.scope)
    inputs = {**given, **{name: value for name, value in made.items() if value is not None}}
    checked = parts.engine.converse.checked_inputs(inputs)
    return replace(request, body={**request.body, "inputs": checked}, filled=request.filled | made.keys())


async def begin(parts: RunnerParts, turn_id: str, work: NewTurn, lease: Lease, emit: Emitter) -> Begun:
    """Begin a turn: append its message to the log and register the turn, at the latest with its first checkpoint.

    Args:
        parts: What the agent works with.
        turn_id: The turn's id.
        work: The request.
        lease: The ownership of the thread.
        emit: Where events go.

    Raises:
        ThreadPaused: A turn of the thread waits for a person or can be resumed.
        AgentClosed: The agent is drained meanwhile; nothing is written.
        NotFirst: The message of an inbox does not begin it.
        WorldAgentError: The role, the model or an attachment is not available; nothing of the turn is written.
    """
    engine = parts.engine
    async with AsyncExitStack() as names:  # of other threads that are written with the turn
        entry, others = engine.signatures(work.request.work)
        call, work.role = work.role, None
        start: Start | None = None
        async with parts.drain.refusing():
            abandoned, interrupted = await _to_abandon(parts, work.request.thread_key, lease)
            _note_interrupted(work, interrupted)
            if work.branch is not None:
                start = await work.branch.start(parts, work.request, lease, names)
                work.request = replace(work.request, body=start.body)
            handed = handed_by(lease)
            if handed is not None or start is not None:
                handed = await _speaking(parts, work, start, handed)
            await engine.open_model(work.request.model)
            await _load(parts, work)
            resolution = await parts.resolver.resolve(
                work.request.scope,
                call=call,
                entry=entry,
                signatures=others,
                tiers=work.request.tiers,
                known=engine.services.signatures,
            )
            reports = None if work.request.reports is None else ReportTo.read(work.request.reports)
            use = await parts.usage.open(turn_id, work.request.scope, most=None if reports is None else reports.limits)
            await _count_stored(parts, work, lease, 0 if start is None else len(start.branches) - 1)
            await parts.starts.enter(turn_id)
        del call
        if work.loaded:
            await parts.stores.attachments.keep(work.loaded)
        if abandoned is not None:
            await _abandon(parts, abandoned, lease)
        emit_started(emit, work.request, resolution)
        branch = None if start is None else start.branches[-1]
        asked = await engine.begin(work.request, turn_id=turn_id, lease=lease, branch=branch)
        record = _record(parts, work.request, turn_id, asked, resolution.role, handed)
        recording, unread = work.recording, Event()
        also = partial(_write_begin, work, start, record)
        parts.stores.turns.begin(record, lease=lease, also=also, unread=unread.set)
        cancelled = False
        # Else it is written with the first checkpoint, before the turn does anything.
        if start is not None or recording is not None or work.loaded:
            # A turn that is on the disk must be ended there too, so a cancellation waits for this write.
            _, cancelled = await uninterrupted(lease.flush())
        lease.after(partial(parts.starts.leave, turn_id))  # with the first checkpoint, before the first model call
        if start is not None:
            lease.known.pop(Branch, None)
        if recording is not None:
            recording.open(lease)
    return Begun(
        turn_id=turn_id,
        role=resolution.role,
        emit=emit,
        lease=lease,
        stream=work.deltas,
        use=use,
        record=record,
        request=work.request,
        skipped=resolution.skipped_tiers,
        kept_as="" if start is None else start.kept_as,
        cancelled=cancelled,
        unread=unread,
    )


async def _speaking(parts: RunnerParts, work: NewTurn, start: Start | None, handed: Handed | None) -> Handed | None:
    """Let the member speak that the thread was handed to, if any, and return who speaks after the turn."""
    if handed is not None and start is not None:
        handed = replace(handed, after=min(handed.after, start.depth))
    work.request, handed = await with_speaker(parts, work.request, handed)
    return handed


def _write_begin(work: NewTurn, start: Start | None, record: TurnRecord, transaction: Transaction) -> None:
    """Write what is written with the begin of a turn.

    Raises:
        NotFirst: The message of an inbox that begins it was withdrawn a moment ago.
    """
    if start is not None:
        start.write(transaction, asked=record.asked)
    if work.recording is not None:
        work.recording.write_begin(transaction)
    if work.inbox and not Inbox.begin(transaction, work.inbox, turn=record.id):
        raise NotFirst


def _note_interrupted(work: NewTurn, turn: str) -> None:
    """Let the message say that it ended the turn before it, if it did."""
    if turn and work.request.kind == "message":
        work.request = replace(work.request, body={**work.request.body, INTERRUPTS: turn})


async def _to_abandon(parts: RunnerParts, key: str, lease: Lease) -> tuple[TurnRecord | None, str]:
    """Find the open turn that new input ends: an interrupted one without open pauses, or one that can never resume.

    Returns:
        That turn, and the id of the turn before if a message ended it at a safe point; empty if none did.

    Raises:
        ThreadPaused: A turn waits.
        VersionTooOld: A turn is open that only a newer version of the package can resume.
    """
    latest = await parts.stores.turns.latest(key, lease=lease)
    if latest is None or latest.status not in OPEN or latest.given_up:
        ended = latest is not None and latest.gentle and latest.status == "cancelled"
        return None, latest.id if ended and latest is not None else ""
    check_version(latest)
    if not parts.engine.resumes(latest.graph, latest.kind) or await to_give_up(parts, latest):
        return latest, ""
    records = await parts.stores.journal.load(latest.id)
    waiting = [pause_id_of(record.id) for record in records.values() if record.open]
    if not waiting and latest.status in ("running", "failed"):
        return latest if latest.status == "running" else None, ""
    what, how = f"is {latest.status}", "resume it"
    if waiting:
        what = f"waits for a person: {', '.join(map(repr, waiting))}"
        how = "resume it, with an answer to each"
    raise ThreadPaused(f"the turn {latest.id!r} of thread {key!r} {what}", remedy=f"{how}, or cancel it")


async def _abandon(parts: RunnerParts, record: TurnRecord, lease: Lease) -> None:
    if record.stale is not None:
        await give_up(parts, record, lease)
    else:
        await end_left(parts.stores, record, "abandoned", lease=lease)


async def _count_stored(parts: RunnerParts, work: NewTurn, lease: Lease, kept: int) -> None:
    """Count what the turn stores for the limits of its account and its workspace.

    `kept` is how many other threads keep messages from before an edit. A fork has counted when it was made.

    Raises:
        LimitReached: It is more than they can store today.
    """
    if not parts.usage.limits_stored:
        return
    # A message of an inbox has counted when it was put in.
    size = 0 if work.inbox else len(canonical_json(work.request.body).encode("utf-8", "surrogatepass"))
    size += sum(len(item.data) for item in work.loaded if item.data is not None)
    key = work.request.thread_key
    there = await parts.stores.turns.latest(key, lease=lease) is not None or await parts.stores.branches.taken(key)
    await parts.usage.store(work.request.scope, size=size, threads=kept + (not there))


async def _load(parts: RunnerParts, work: NewTurn) -> None:
    """Fill the inputs of capabilities, and read the attachments to put references to them into the message.

    Nothing is written yet.
    """
    if parts.fields and work.request.work is None:
        work.request = await _with_fields(parts, work.request)
    if not work.request.attached:
        return
    loaded = await parts.stores.attachments.load(work.request.attached)
    attached = [item.attachment for item in loaded]
    if work.request.kind == "message":  # a task's handler decides what it does with its attachments
        await parts.engine.check_attached(attached, work.request.model)
    body = {**work.request.body, "attachments": [one.to_json() for one in attached]}
    work.request = replace(work.request, body=body, attached=())
    work.loaded = loaded


def _record(
    parts: RunnerParts, request: TurnRequest, turn_id: str, asked: str, role: ResolvedRole, handed: Handed | None
) -> TurnRecord:
    key, now = parts.resolver.key, parts.stores.clock.now()
    noted = key.note(role) | ({"sent": []} if role.tiers else {})
    return TurnRecord(
        id=turn_id,
        thread=request.thread_key,
        scope=request.scope,
        kind=request.kind,
        author=request.author,
        status="running",
        asked=asked,
        role=noted | ({} if request.tiers is None else {"only": list(request.tiers)}),
        prompt=None if request.prompt is None else key.digest_of(request.prompt),
        graph=parts.engine.graph_of(request.kind),
        began=now,
        changed=now,
        model=request.model,
        origin=None if request.origin is None else request.origin.to_json(),
        unattended=request.unattended,
        example=request.example,
        on_behalf_of=request.on_behalf_of,
        reports=request.reports,
        version=this_version(),
        needs=LEAST,
        handed=handed,
    )
