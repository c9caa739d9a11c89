"""The steps of a new turn before its graph runs: resolve the role, append the message and write both down."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from ...core import Emitter
from ...core.clock import uninterrupted
from ...core.errors import ThreadPaused
from ...core.events import RoleTierSkipped, TurnKind, TurnStarted
from ...core.pauses import pause_id_of
from ...graphs import TurnRequest, TurnRun
from ...memory import OPEN, TurnRecord
from ...memory.branches import Branch
from ...role_resolution import Resolution, ResolvedRole
from ...storage import Lease, Transaction
from .branching import Start
from .work import Begun, NewTurn, RunnerParts


async def begin(parts: RunnerParts, turn_id: str, work: NewTurn, lease: Lease, emit: Emitter, *, deltas: bool) -> Begun:
    """Begin a turn: append its message to the log and register the turn, at the latest with its first checkpoint.

    Args:
        parts: What the agent works with.
        turn_id: The turn's id.
        work: The request.
        lease: The ownership of the thread.
        emit: Where events go.
        deltas: Whether the caller wants the answer in parts.

    Raises:
        ThreadPaused: A turn of the thread waits for a person or can be resumed.
        AgentClosed: The agent is drained meanwhile; nothing is written.
        WorldAgentError: The role, the model or an attachment is not available; nothing of the turn is written.
    """
    engine = parts.engine
    async with AsyncExitStack() as names:  # of other threads that are written with the turn
        entry, others = engine.signatures(work.request.work)
        call, work.role = work.role, None
        start: Start | None = None
        async with parts.drain.refusing():
            abandoned = await _to_abandon(parts, work.request.thread_key, lease)
            if work.branch is not None:
                start = await work.branch.start(parts, work.request, lease, names)
                work.request = replace(work.request, body=start.body)
            await engine.open_model(work.request.model)
            await _load(parts, work)
            scope = work.request.scope
            resolution = await parts.resolver.resolve(scope, call=call, entry=entry, signatures=others)
            use = await parts.usage.open(turn_id, scope)
            await parts.starts.enter(turn_id)
        del call
        if abandoned is not None:
            await parts.turns.end(abandoned, "abandoned", lease=lease)
            await parts.journal.withdraw(abandoned.id)
        emit_started(emit, scope.thread or "", work.request.kind, resolution)
        await parts.attachments.keep(work.loaded)
        branch = None if start is None else start.branches[-1]
        asked = await engine.begin(work.request, turn_id=turn_id, lease=lease, branch=branch)
        record = _record(parts, work.request, turn_id, asked, resolution.role)
        recording = work.recording

        def also(transaction: Transaction) -> None:
            if start is not None:
                start.write(transaction, asked=asked)
            if recording is not None:
                recording.write_begin(transaction)

        parts.turns.begin(record, lease=lease, also=also)
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
    run = TurnRun(turn_id=turn_id, role=resolution.role, emit=emit, lease=lease, stream=deltas, use=use)
    return Begun(
        record=record,
        request=work.request,
        run=run,
        lease=lease,
        use=use,
        skipped=resolution.skipped_tiers,
        kept_as="" if start is None else start.kept_as,
        cancelled=cancelled,
    )


def emit_started(emit: Emitter, thread: str, kind: TurnKind, resolution: Resolution, *, resumed: bool = False) -> None:
    """Emit that a run has begun, and which tiers its role does without."""
    emit(TurnStarted, thread=thread, kind=kind, role_tiers=resolution.role.tiers, resumed=resumed)
    for tier, code in resolution.skipped.items():
        emit(RoleTierSkipped, tier=tier, code=code)


async def _to_abandon(parts: RunnerParts, key: str, lease: Lease) -> TurnRecord | None:
    """Find the open turn that new input abandons: an interrupted one without open pauses, or one of a retired graph.

    Raises:
        ThreadPaused: A turn waits.
    """
    latest = await parts.turns.latest(key, lease=lease)
    if latest is None or latest.status not in OPEN:
        return None
    if not parts.engine.resumes(latest.graph, latest.kind):
        return latest
    records = await parts.journal.load(latest.id)
    waiting = [pause_id_of(record.id) for record in records.values() if record.open]
    if not waiting and latest.status in ("running", "failed"):
        return latest if latest.status == "running" else None
    what, how = f"is {latest.status}", "resume it"
    if waiting:
        what = f"waits for a person: {', '.join(map(repr, waiting))}"
        how = "resume it, with an answer to each"
    raise ThreadPaused(f"the turn {latest.id!r} of thread {key!r} {what}", remedy=f"{how}, or cancel it")


async def _load(parts: RunnerParts, work: NewTurn) -> None:
    """Read the attachments and put references to them into the message; nothing is written yet."""
    if not work.request.attached:
        return
    loaded = await parts.attachments.load(work.request.attached)
    attached = [item.attachment for item in loaded]
    if work.request.kind == "message":  # a task's handler decides what it does with its attachments
        await parts.engine.check_attached(attached, work.request.model)
    body = {**work.request.body, "attachments": [one.to_json() for one in attached]}
    work.request = replace(work.request, body=body, attached=())
    work.loaded = loaded


def _record(parts: RunnerParts, request: TurnRequest, turn_id: str, asked: str, role: ResolvedRole) -> TurnRecord:
    key, now = parts.resolver.key, parts.clock.now()
    return TurnRecord(
        id=turn_id,
        thread=request.thread_key,
        scope=request.scope,
        kind=request.kind,
        author=request.author,
        status="running",
        asked=asked,
        role=key.note(role),
        prompt=None if request.prompt is None else key.digest_of(request.prompt),
        graph=parts.engine.GRAPH,
        began=now,
        changed=now,
        model=request.model,
        origin=None if request.origin is None else request.origin.to_json(),
        unattended=request.unattended,
    )


__all__ = ["begin", "emit_started"]
