"""One run at one turn: ownership, role, graph, events, in this order (design 3). New turns and resumed ones alike.

Which turns run is `_runner`'s matter; what is waited for, and which answers are taken, `_resuming`'s.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from traceback import clear_frames
from typing import Any

from ...core import Emitter, Tier
from ...core.awaiting import uninterrupted
from ...core.errors import (
    StorageUnavailable,
    ThreadPaused,
    WorldAgentError,
)
from ...core.events import (
    PauseClosed,
    PauseNotified,
    PauseOpened,
    RoleTierSkipped,
    TextReplaced,
    TurnEnded,
    TurnKind,
    TurnStarted,
)
from ...core.pauses import Pause, pause_id_of
from ...graphs import TurnOutcome, TurnRequest, TurnRun
from ...harness.inside import Origin
from ...harness.limits import Use
from ...memory import OPEN, TurnRecord, TurnStatus, thread_key
from ...memory.attachments import Loaded
from ...memory.branches import Branch
from ...role_resolution import NO_ROLE, Resolution
from ...storage import Known, Lease, Transaction
from .._turns import Turn, TurnUsage
from .._unattended import notify
from ..events import Ending, Tell, together
from ._branching import Again, Start
from ._limits import limited
from ._resuming import checked, ended
from ._work import Ask, NewTurn, ResumedTurn, Resumption, RunnerParts
from .keyed import KeyBegun, unless_begun


@dataclass(slots=True)
class TurnRunning:
    """One run at one turn."""

    parts: RunnerParts
    turn_id: str
    work: NewTurn | ResumedTurn
    emit: Emitter
    deltas: bool
    stopped: bool = False  # cut off by a drain, and written down so
    kept_as: str = ""  # the thread that keeps what was edited
    announced: frozenset[str] = frozenset()  # pauses whose person an earlier run has notified
    fresh: tuple[Pause, ...] = ()  # pauses whose person this run has notified

    async def __call__(self) -> Turn:
        failure: WorldAgentError
        try:
            turn = await self._owned()
        except asyncio.CancelledError as error:
            clear_frames(error.__traceback__)
            if not self.stopped:
                self._end("cancelled")
                raise
            self._end("stopped")
            return Turn(id=self.turn_id, thread=self._thread, kept_as=self.kept_as, status="stopped")
        except KeyBegun:  # nothing of it is told: the turn is another process's
            raise
        except WorldAgentError as error:
            failure = error
        except (sqlite3.Error, OSError) as error:
            failure = StorageUnavailable(
                f"the agent's database failed with {type(error).__name__}", remedy="look after the disk and try again"
            )
        except BaseException:  # not by name: whatever it is goes on, and who reads the stream learns that it is over
            self._end("failed", "internal")
            raise
        else:
            self._end(turn.status, text=turn.text)
            return turn
        # Whoever keeps the error keeps its frames, and what they held of the turn with them.
        clear_frames(failure.__traceback__)
        failure.turn_id = self.turn_id
        self._end("failed", failure.code)
        raise failure

    @property
    def _thread(self) -> str:
        return self.work.scope.thread or ""

    def _end(self, status: str, code: str | None = None, *, text: str = "") -> None:
        """Tell how it ended, unless that is written in the event log, and handed out as it stands there."""
        recording = self.work.recording
        if recording is None or not recording.finish(self.emit):
            tell_end(self.emit, status, code, text=text)

    async def _owned(self) -> Turn:
        parts, work = self.parts, self.work
        key = thread_key(work.scope)
        async with AsyncExitStack() as held:
            async with parts.drain.refusing():
                if isinstance(work, NewTurn) and isinstance(work.branch, Again):
                    scope, lease = await work.branch.claim(parts, held)
                    work.ask, key = replace(work.ask, scope=scope), thread_key(scope)
                else:
                    lease = await self._lease(key, held)
            if isinstance(work, NewTurn):
                return await self._begun(work, key, lease)
            return await self._resumed(work, key, lease)

    async def _lease(self, key: str, held: AsyncExitStack) -> Lease:
        """Come to own the thread, unless somebody else has begun the turn by its key, or goes on with it."""
        parts = self.parts

        def read(transaction: Transaction) -> Known:
            return {**parts.turns.read(transaction, key), **parts.engine.read(transaction, key)}

        owning = parts.leases.hold(key, wait=parts.thread_wait, read=read)
        if not self.work.by_key:
            return await held.enter_async_context(owning)
        async with unless_begun(self._is_begun):
            lease = await held.enter_async_context(owning)
        if await self._is_begun():
            raise KeyBegun
        return lease

    async def _is_begun(self) -> bool:
        parts, work = self.parts, self.work
        if isinstance(work, ResumedTurn):
            now = await parts.turns.get(self.turn_id)
            return now is None or (now.status, now.changed) != (work.record.status, work.record.changed)
        assert work.recording is not None, "what has a key is recorded"
        turn = work.recording.turn
        return await parts.recorder.log.keyed(turn.thread, turn.key or "") is not None

    # --- a new turn -------------------------------------------------------------------------------------------------

    async def _to_abandon(self, key: str, lease: Lease) -> TurnRecord | None:
        """The open turn that new input abandons: an interrupted one without open pauses, or one of a retired graph.

        Raises:
            ThreadPaused: A turn waits.
        """
        latest = await self.parts.turns.latest(key, lease=lease)
        if latest is None or latest.status not in OPEN:
            return None
        if not self.parts.engine.resumes(latest.graph, latest.kind):
            return latest
        records = await self.parts.journal.load(latest.id)
        waiting = [pause_id_of(record.id) for record in records.values() if record.open]
        if not waiting and latest.status in ("running", "failed"):
            return latest if latest.status == "running" else None
        what, how = f"is {latest.status}", "resume it"
        if waiting:
            what = f"waits for a person: {', '.join(map(repr, waiting))}"
            how = "resume it, with an answer to each"
        raise ThreadPaused(f"the turn {latest.id!r} of thread {key!r} {what}", remedy=f"{how}, or cancel it")

    async def _begun(self, work: NewTurn, key: str, lease: Lease) -> Turn:
        parts, engine = self.parts, self.parts.engine
        async with AsyncExitStack() as names:  # of other threads that are written with the turn
            entry, others = engine.signatures(work.ask.work)
            call, work.role = work.role, None
            start: Start | None = None
            async with parts.drain.refusing():
                abandoned = await self._to_abandon(key, lease)
                if work.branch is not None:
                    start = await work.branch.start(parts, work.ask, lease, names)
                    work.ask = replace(work.ask, body=start.body)
                await engine.open_model(work.ask.model)
                loaded = await self._loaded(work)
                resolution = await parts.resolver.resolve(work.ask.scope, call=call, entry=entry, signatures=others)
            del call
            if abandoned is not None:
                await parts.turns.end(abandoned, "abandoned", lease=lease)
                await parts.journal.withdraw(abandoned.id)
            self._started(work.ask.kind, resolution)
            request = self._request(work.ask, key, start)
            await parts.attachments.keep(loaded)
            asked = await engine.begin(request, lease=lease)
            await parts.attachments.settle(loaded)
            del loaded
            record = self._record(work.ask, key, asked, resolution)
            branches = None if start is None else partial(start.write, asked=asked)
            recording = work.recording
            begun = None if recording is None else recording.beginning
            # Once it is there it is ended well, whoever cancels it meanwhile.
            _, cancelled = await uninterrupted(parts.turns.begin(record, lease=lease, also=together(branches, begun)))
            if start is not None:
                self.kept_as = start.kept_as
                lease.known.pop(Branch, None)
            if recording is not None:
                recording.open(lease)
        use, late = await uninterrupted(parts.usage.open(record.id, record.scope))
        run = TurnRun(
            role=resolution.role, emit=self.emit, lease=lease, stream=self.deltas, prompt=work.ask.prompt, use=use
        )
        async with self._kept(record, lease, use):
            if cancelled or late:
                raise asyncio.CancelledError
            async with limited(parts.turn_timeout, parts.clock):
                outcome = await engine.run(request, run, asked=record.asked)
            await self._notified(record, outcome)
            await self._settled()
            lease.check()
        return await self._over(record, outcome, resolution, lease, use)

    async def _loaded(self, work: NewTurn) -> tuple[Loaded, ...]:
        """Read what is attached, and put the references into what goes into the log; nothing is written yet."""
        if not work.ask.attached:
            return ()
        loaded = await self.parts.attachments.load(work.ask.attached)
        attached = [item.attachment for item in loaded]
        if work.ask.kind == "message":  # what a task does with them is the handler's matter
            await self.parts.engine.check_attached(attached, work.ask.model)
        body = {**work.ask.body, "attachments": [one.to_json() for one in attached]}
        work.ask = replace(work.ask, body=body, attached=())
        return loaded

    def _request(self, ask: Ask, key: str, start: Start | None) -> TurnRequest:
        return TurnRequest(
            turn_id=self.turn_id,
            kind=ask.kind,
            thread_key=key,
            scope=ask.scope,
            author=ask.author,
            body=ask.body,
            work=ask.work,
            branch=None if start is None else start.branches[-1],
            model=ask.model,
            origin=ask.origin,
            unattended=ask.unattended,
            output=ask.output,
        )

    def _record(self, ask: Ask, key: str, asked: str, resolution: Resolution) -> TurnRecord:
        engine, now = self.parts.engine, self.parts.clock.now()
        return TurnRecord(
            id=self.turn_id,
            thread=key,
            scope=ask.scope,
            kind=ask.kind,
            author=ask.author,
            status="running",
            asked=asked,
            role=engine.note(resolution.role),
            prompt=None if ask.prompt is None else engine.stands_for(ask.prompt),
            graph=engine.GRAPH,
            began=now,
            changed=now,
            model=ask.model,
            origin=None if ask.origin is None else ask.origin.to_json(),
            unattended=ask.unattended,
        )

    # --- a resumed one ----------------------------------------------------------------------------------------------

    async def _resumed(self, work: ResumedTurn, key: str, lease: Lease) -> Turn:
        parts, engine = self.parts, self.parts.engine
        record = await parts.turns.latest(key, lease=lease)
        gone = ended(record, self.turn_id, key)
        if gone is not None:
            raise gone
        assert record is not None
        message, item = await engine.begun_with(record.asked, record.kind)
        if record.status == "done":
            return await self._was_over(record, item)
        recording = work.recording
        if recording is not None:
            self.emit.go_on_after(await parts.recorder.log.last(record.id) or 0)
        how, work.how = work.how, Resumption()
        resolution, refreshed = await checked(parts, record, how, (message, item))
        self._started(record.kind, resolution, resumed=True)
        if recording is not None and record.status == "running" and await parts.recorder.log.standing(record.id):
            self.emit(TextReplaced, text="")  # whoever was cut off did not come to take it back
        for pause_id in work.answered:
            self.emit(PauseClosed, pause_id=pause_id)
        self.announced = await self._announced(record)
        origin = Origin.both(Origin.read(record.origin), work.origin)
        request = TurnRequest(
            turn_id=record.id,
            kind=record.kind,
            thread_key=key,
            scope=record.scope,
            author=record.author,
            body=message.body,
            work=item,
            model=record.model,
            origin=origin,
            role_key=record.role["key"],
            unattended=record.unattended,
            output=how.output,
        )
        use = await parts.usage.open(record.id, record.scope, again=True)
        run = TurnRun(
            role=resolution.role,
            emit=self.emit,
            lease=lease,
            stream=self.deltas,
            prompt=how.prompt,
            refreshed=refreshed,
            use=use,
        )
        del how
        if origin is not None and work.origin is not None:
            record = await parts.turns.begun_in(record, origin.to_json(), lease=lease)
        going_on = None if recording is None else recording.going_on
        written, cancelled = await uninterrupted(parts.turns.end(record, "running", lease=lease, each=going_on))
        record = written
        if recording is not None:
            recording.open(lease)
        async with self._kept(record, lease, use):
            if cancelled:
                raise asyncio.CancelledError
            async with limited(parts.turn_timeout, parts.clock):
                outcome = await engine.resume(request, run, asked=record.asked)
            await self._notified(record, outcome)
            await self._settled()
            lease.check()
        return await self._over(record, outcome, resolution, lease, use)

    async def _was_over(self, record: TurnRecord, item: Any) -> Turn:
        """Another owner ended the turn while this one waited for the thread."""
        outcome = await self.parts.engine.ended(record.thread, item)
        return self._turn(outcome, Resolution(NO_ROLE), tiers=tuple(map(Tier, record.role["tiers"])))

    # --- both -------------------------------------------------------------------------------------------------------

    def _started(self, kind: TurnKind, resolution: Resolution, *, resumed: bool = False) -> None:
        tiers = resolution.role.tiers
        self.emit(TurnStarted, thread=self._thread, kind=kind, role_tiers=tiers, resumed=resumed)
        for tier, code in resolution.skipped.items():
            self.emit(RoleTierSkipped, tier=tier, code=code)

    @asynccontextmanager
    async def _kept(self, record: TurnRecord, lease: Lease, use: Use) -> AsyncGenerator[None]:
        """Write down how a run ends that gives no outcome."""
        try:
            yield
        except asyncio.CancelledError:
            # What did not come to a stop in time can go on later all the same.
            self.stopped = await self._note(
                record, "stopped" if self.parts.drain.begun else "cancelled", None, lease, use
            )
            raise
        except WorldAgentError as error:
            await self._note(record, "failed", error.code, lease, use)
            raise
        except (sqlite3.Error, OSError):  # the database takes nothing; once it does, the turn is cut off and can go on
            raise
        except Exception:  # not by name: bodies of others run in it; whatever it is goes on, once it is written down
            await self._note(record, "failed", "internal", lease, use)
            raise

    async def _announced(self, record: TurnRecord) -> frozenset[str]:
        """The pauses whose person was notified before: a turn is recorded as paused after that, and not otherwise."""
        if record.unattended is None or record.status != "paused":
            return frozenset()
        kept = await self.parts.journal.load(record.id)
        return frozenset(pause_id_of(call.id) for call in kept.values() if call.open or call.answered)

    async def _notified(self, record: TurnRecord, outcome: TurnOutcome) -> None:
        """Notify the person whom an unattended turn waits for, once for each of its new pauses."""
        if record.unattended is None:
            return
        parts = self.parts
        self.fresh = tuple(pause for pause in outcome.pauses if pause.id not in self.announced)
        await notify(parts.notifier, self.fresh, clock=parts.clock, on_error=parts.engine.services.on_error)

    async def _settled(self, *, patient: bool = False) -> None:
        """Wait until nothing that the run told is being written: the rest goes with what becomes of the turn."""
        if self.work.recording is not None:
            await self.work.recording.settled(patient=patient)

    def _ending(self, status: TurnStatus, tell: Tell) -> Ending | None:
        """What is written of a run's end beside what becomes of the turn, where it is recorded."""
        recording = self.work.recording
        return None if recording is None or not recording.begun else recording.ending(self.emit, status, tell)

    async def _note(self, record: TurnRecord, status: TurnStatus, code: str | None, lease: Lease, use: Use) -> bool:
        """Whether the turn can go on later."""
        try:
            await self._settled(patient=True)
            lease.recover()
            ending = self._ending(status, lambda emit, status: tell_end(emit, status, _code(status, code)))
            writing = use.writing()
            each = together(writing, ending)
            record, _ = await uninterrupted(self.parts.turns.end(record, status, code=code, lease=lease, each=each))
            writing.done()
            if ending is not None:
                ending.done()
            if record.status == "cancelled":  # in this order: what is withdrawn must not be asked for again
                await self.parts.journal.withdraw(record.id)
        except (WorldAgentError, asyncio.CancelledError):
            pass  # what ended the run is told, not that it could not be written down
        return record.status == "stopped"

    async def _over(
        self, record: TurnRecord, outcome: TurnOutcome, resolution: Resolution, lease: Lease, use: Use
    ) -> Turn:
        writing, retention = use.writing(), self.parts.retention
        turn = self._turn(outcome, resolution, tiers=resolution.role.tiers)
        ending = self._ending(outcome.status, lambda emit, status: self._tell_outcome(emit, status, outcome, turn.text))
        each = together(writing, ending)
        # What is written stands: whoever cancels it by now comes too late.
        end = self.parts.turns.end(record, outcome.status, lease=lease, also=retention, each=each)
        record, _ = await uninterrupted(end)
        writing.done()
        if ending is not None:
            ending.done()
        if record.status == "cancelled":  # somebody asked for it while this run came to its end
            await self.parts.journal.withdraw(record.id)
            self.parts.pins.drop(record.id)
            return Turn(id=record.id, thread=self._thread, kept_as=self.kept_as, status="cancelled")
        if outcome.status == "paused":
            self.parts.pins.keep(record.id, resolution.role)
        else:
            self.parts.pins.drop(record.id)
        if ending is None:
            self._tell_pauses(self.emit, outcome)
        return turn

    def _tell_pauses(self, emit: Emitter, outcome: TurnOutcome) -> None:
        tell_pauses(emit, outcome)
        scope = self.work.scope
        for pause in self.fresh:
            emit(
                PauseNotified,
                pause_id=pause.id,
                kind=pause.kind,
                function=pause.function,
                thread=scope.thread or "",
                account=scope.account,
            )

    def _tell_outcome(self, emit: Emitter, status: TurnStatus, outcome: TurnOutcome, text: str) -> None:
        """Tell what a run gave; where it was cancelled at the last moment, nothing of it counts."""
        counts = status == outcome.status
        if counts:
            self._tell_pauses(emit, outcome)
        if counts and status == "done" and outcome.text and text and not emit.standing:
            emit(TextReplaced, text=text)  # it was given in a run that was cut off before its end
        tell_end(emit, status, text=text if counts else "")

    def _turn(self, outcome: TurnOutcome, resolution: Resolution, *, tiers: tuple[Tier, ...]) -> Turn:
        return Turn(
            id=self.turn_id,
            thread=self._thread,
            kept_as=self.kept_as,
            status=outcome.status,
            text=outcome.text or ("" if outcome.result is None else outcome.result.model_dump_json()),
            result=outcome.result,
            role_tiers=tiers,
            skipped_tiers=tuple(tier for tier in reversed(Tier) if tier in resolution.skipped),
            usage=TurnUsage.of(outcome.usage),
            pauses=outcome.pauses,
        )


def tell_end(emit: Emitter, status: str, code: str | None = None, *, text: str = "") -> None:
    """Tell how a run ended; where there is no answer, what was streamed of one does not stand."""
    if status != "done" and emit.standing:
        emit(TextReplaced, text="")
    emit(TurnEnded, status=status, code=code, text=text)


def tell_pauses(emit: Emitter, outcome: TurnOutcome) -> None:
    """Tell what is asked of a person."""
    for pause in outcome.pauses:
        emit(
            PauseOpened,
            pause_id=pause.id,
            kind=pause.kind,
            function=pause.function,
            arguments=dict(pause.arguments),
            hash=pause.hash,
            risk=pause.risk,
            reason=pause.reason,
            caller=pause.caller,
            approvers=pause.approvers,
            question=pause.question,
            options=pause.options,
            answer_schema=None if pause.schema is None else dict(pause.schema),
        )


def _code(status: TurnStatus, code: str | None) -> str | None:
    return code if status == "failed" else None
