"""Which turns can resume, which answers are accepted (T4), and a resumed turn's steps before its graph runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from traceback import clear_frames
from typing import Any

from ...core import Emitter, Scope, Tier
from ...core.clock import uninterrupted
from ...core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    InvalidArgument,
    NothingToResume,
    RoleRequired,
    UnknownPause,
    UsageError,
    WorldAgentError,
)
from ...core.events import PauseClosed, TextReplaced
from ...core.pauses import call_id_of, pause_id_of
from ...graphs import TurnOutcome, TurnRequest
from ...harness.inside import Origin
from ...harness.journal import decision_of, pause_of
from ...memory import OPEN, Message, TurnRecord, thread_key
from ...memory.conversation import output_schema
from ...memory.reports import ReportTo
from ...role_resolution import Resolution, Role
from ...storage import Lease
from .speaking import speaker_in
from .versions import LEAST, check_version, newest, this_version
from .work import Begun, ResumedTurn, Resumption, RunnerParts, emit_started


async def resumable(parts: RunnerParts, scope: Scope, answers: Mapping[str, object]) -> TurnRecord:
    """Find the turn of a thread that can be resumed.

    Args:
        parts: What the agent works with.
        scope: The thread.
        answers: The caller's answers, by the ids of pauses.

    Raises:
        AlreadyAnswered: The turn is done, and one of these pauses was answered before.
        NothingToResume: No turn can be resumed; the text says why.
        VersionTooOld: It needs a newer version of the package.
    """
    key = thread_key(scope)
    record = await parts.stores.turns.latest(key)
    if record is None:
        raise NothingToResume(f"thread {key!r} has no turn", remedy="send a message on it first")
    if record.given_up:
        raise NothingToResume(
            f"the last turn {record.id!r} of thread {key!r} could not resume, and was ended",
            remedy="begin a new turn",
        )
    if record.status in OPEN:
        check_version(record)
        return record
    if record.status == "done" and isinstance(answers, Mapping) and answers:
        records = await parts.stores.journal.load(record.id)
        for pause_id in answers:
            found = records.get(call_id_of(str(pause_id)))
            if found is not None and found.settled:
                raise AlreadyAnswered(
                    f"the pause {pause_id!r} is answered already, and the turn {record.id!r} is done",
                    remedy="look at the thread's history for its result, or begin a new turn",
                )
    raise NothingToResume(
        f"the last turn {record.id!r} of thread {key!r} is {record.status}", remedy="begin a new turn"
    )


def ended(latest: TurnRecord | None, turn_id: str, thread: str) -> NothingToResume | None:
    """Return an error if the turn to resume was cancelled, abandoned or replaced; None if it can be resumed.

    Args:
        latest: The thread's newest turn now.
        turn_id: The turn to resume.
        thread: The thread's key.
    """
    over = latest is None or latest.given_up or latest.status in ("cancelled", "abandoned")
    if latest is not None and latest.id == turn_id and not over:
        return None
    became = latest.status if latest is not None and latest.id == turn_id else "ended"
    return NothingToResume(
        f"the turn {turn_id!r} of thread {thread!r} was {became} meanwhile", remedy="begin a new turn"
    )


async def checked(
    parts: RunnerParts, record: TurnRecord, how: Resumption, begun: tuple[Message, Any]
) -> tuple[Resolution, bool]:
    """Check that a turn can resume: its graph, model, role, skill and output must be those that it began with.

    Args:
        parts: What the agent works with.
        record: The turn.
        how: How to resume it.
        begun: The message that the turn began with, and the task that it dispatches, if any.

    Returns:
        The turn's role, and whether that role can differ from the one that the turn began with.

    Raises:
        GraphChanged, ModelNotConfigured, InvalidArgument: Something that the turn needs is missing or differs.
        RoleRequired, RoleChanged, RoleKeyMismatch: The role differs from the one that the turn began with.
        AgentClosed: The agent is drained meanwhile.
    """
    engine = parts.engine
    message, item = begun
    _check_engine(parts, record)
    engine.check_speaker(record.kind, message.body)
    await engine.check_work(record.id, record.thread, record.scope.account)
    if how.output is not None and how.output.json_schema() != json.loads(output_schema(message.body) or "null"):
        raise InvalidArgument(
            f"`output` differs from the one that the turn {record.id!r} began with",
            remedy="pass the same output= again, or omit it to get the result as JSON",
        )
    async with parts.drain.refusing():
        await engine.open_model(record.model)
        resolution, refreshed = await _resolved_again(parts, record, how, item)
    engine.check_prompt(record.prompt, how.prompt, record.kind, refreshed=refreshed)
    if not refreshed and record.role["key"] != parts.resolver.key.id:
        await engine.check_calls(record.id)
    return resolution, refreshed


def _check_engine(parts: RunnerParts, record: TurnRecord) -> None:
    parts.engine.check_graph(record.graph, record.kind)
    parts.engine.check_model(record.model, who=f"the turn {record.id!r}, which began with it,")


async def take_answers(
    parts: RunnerParts, record: TurnRecord, answers: Mapping[str, object], how: Resumption, *, account: str | None
) -> tuple[str, ...]:
    """Store a person's answers: all of them, or none if one of them is invalid or the turn cannot resume.

    Args:
        parts: What the agent works with.
        record: The turn.
        answers: Answers by the ids of pauses.
        how: How the turn is to resume.
        account: The account that answers.

    Returns:
        The ids of the pauses.

    Raises:
        NotAnApprover: The policy does not let this account answer.
        UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer is not accepted.
        NothingToResume: The turn was ended meanwhile.
        HostError: The turn cannot resume here; see `checked`.
    """
    if not isinstance(answers, Mapping):
        raise InvalidArgument("`answers` must be a mapping", remedy="map ids of pauses to answers")
    if not answers:
        return ()
    try:
        decisions = await _decisions(parts, record, answers, account)
        await _check_resumable(parts, record, how, account)
        for call_id in await parts.stores.journal.answer(record.id, decisions):
            raise _answered(pause_id_of(call_id))
        return tuple(map(pause_id_of, decisions))
    except (UnknownPause, AlreadyAnswered) as error:
        refused: UsageError = error
    # The pauses of a turn that was cancelled are closed, although no person answered them.
    raise ended(await parts.stores.turns.latest(record.thread), record.id, record.thread) or refused


async def _check_resumable(parts: RunnerParts, record: TurnRecord, how: Resumption, account: str | None) -> None:
    """Check all that can be checked of a turn before its run, since a stored answer cannot be given again.

    The run checks it again once it owns the thread, because much can change while it waits for that.

    Raises:
        WorldAgentError: The turn cannot resume; the error carries the turn's id.
    """
    failure: WorldAgentError
    try:
        begun = await opening(parts, record)
        # Only the turn's own account can pass its call role. An approver's answer is stored and waits for that account.
        if account is None or account == record.scope.account:
            await checked(parts, record, how, begun)
        else:
            _check_engine(parts, record)
            await parts.engine.check_work(record.id, record.thread, record.scope.account)
        return
    except WorldAgentError as error:
        failure = error
    clear_frames(failure.__traceback__)  # they hold the role, and a caller may keep the error
    failure.turn_id = record.id
    raise failure


async def opening(parts: RunnerParts, record: TurnRecord) -> tuple[Message, Any]:
    """Load the message that a turn began with and the task that it dispatches, if any.

    What a capability gives a turn is made known here: the worker of the member that it runs for, and the tools of
    servers that its account has logged in to.

    Raises:
        StorageInvalid, GraphChanged: See `TurnEngine.load_opening_message`.
        VersionTooOld: The turn needs a newer version of the package.
        NameTaken: The agent has a function or a worker of its own with the id of the member.
    """
    check_version(record)
    for prepare in parts.hooks.resuming:
        await prepare(record.on_behalf_of)
    async with parts.around(record.scope.account):
        pass
    return await parts.engine.load_opening_message(record.asked, record.kind)


async def _resolved_again(
    parts: RunnerParts, record: TurnRecord, how: Resumption, item: Any
) -> tuple[Resolution, bool]:
    """Resolve the role again and compare it with the first one (R13); returns whether another role is allowed."""
    scope = f"thread {record.thread!r}"
    if how.on_role_change == "pin":
        pinned = parts.pins.get(record.id)
        if pinned is None:
            raise RoleRequired(
                f"the role of the paused turn of {scope} is no longer in memory",
                remedy="pass the role again with `on_role_change` as `fail`, or resume with `refresh`",
            )
        return Resolution(pinned), False
    entry, others = parts.engine.signatures(item)
    call = how.role if isinstance(how.role, Role) else None
    only = record.role.get("only")
    tiers = None if only is None else tuple(map(Tier, only))
    resolution = await parts.resolver.resolve(
        record.scope, call=call, entry=entry, signatures=others, turn=record.id, tiers=tiers
    )
    if how.on_role_change == "refresh":
        return resolution, True
    if not entry and not others:  # no Signature of this turn takes a role, whatever the record says
        return resolution, record.role["digest"] is not None
    if how.role is None and Tier.CALL in map(Tier, record.role["tiers"]):
        return resolution, True  # the caller omits the call role on purpose
    parts.resolver.key.check(record.role, resolution.role, scope=scope)
    return resolution, False


async def _decisions(
    parts: RunnerParts, record: TurnRecord, answers: Mapping[str, object], account: str | None
) -> dict[str, Any]:
    """Validate the answers and return what the journal stores for them."""
    records = await parts.stores.journal.load(record.id)
    decisions: dict[str, Any] = {}
    for pause_id, answer in answers.items():
        found = records.get(call_id_of(str(pause_id)))
        if found is None or found.ask is None or not found.made:  # nor a pause that no call waits for any more
            known = ", ".join(repr(pause_id_of(entry.id)) for entry in records.values() if entry.open) or "none"
            raise UnknownPause(
                f"the turn {record.id!r} has no pause {str(pause_id)[:200]!r}",
                remedy=f"the open pauses are: {known}",
            )
        if not found.open:
            raise _answered(pause_id)
        if found.late(parts.stores.clock.now()):
            raise AnswerInvalid(
                f"the answer to the pause {pause_id!r} comes after it expired",
                remedy="resume without an answer to it; its call fails with PauseExpired",
            )
        if found.id in decisions:  # given under its present id and under the path id that 0.1.0 used
            raise InvalidArgument(f"the pause {pause_id!r} is answered twice", remedy="answer each pause once")
        decisions[found.id] = decision_of(pause_of(found), answer, account)
    return decisions


def _answered(pause_id: str) -> AlreadyAnswered:
    return AlreadyAnswered(
        f"the pause {pause_id!r} is answered already", remedy="resume the turn without an answer to it"
    )


async def resume(parts: RunnerParts, work: ResumedTurn, lease: Lease, emit: Emitter) -> Begun | TurnOutcome:
    """Take up a turn where it paused or stopped, up to the start of its graph.

    Args:
        parts: What the agent works with.
        work: The turn.
        lease: The ownership of the thread.
        emit: Where events go.

    Returns:
        The turn, ready to run; or its outcome, if another process ended it while this one waited for the thread.

    Raises:
        NothingToResume: It was cancelled or abandoned meanwhile.
        WorldAgentError: It cannot resume; see `checked`.
    """
    engine, record = parts.engine, await parts.stores.turns.latest(thread_key(work.scope), lease=lease)
    gone = ended(record, work.record.id, thread_key(work.scope))
    if gone is not None:
        raise gone
    assert record is not None
    message, item = await opening(parts, record)
    if record.status == "done":
        return await engine.ended(record.thread, item)
    recording = work.recording
    if recording is not None:
        emit.continue_after(await parts.recorder.log.last(record.id) or 0)
    how, work.how = work.how, Resumption()
    resolution, refreshed = await checked(parts, record, how, (message, item))
    emit_started(emit, record, resolution, resumed=True)
    if recording is not None and record.status == "running" and await parts.recorder.log.has_open_text(record.id):
        emit(TextReplaced, text="")  # the interrupted run could not withdraw its streamed text
    for pause_id in work.answered:
        emit(PauseClosed, pause_id=pause_id)
    announced = await _announced(parts, record)
    origin = Origin.both(Origin.read(record.origin), work.origin)
    request = TurnRequest(
        record.kind,
        record.scope,
        message.body,
        item,
        how.prompt,
        model=record.model,
        origin=origin,
        unattended=record.unattended,
        output=how.output,
        view=how.view,
        example=record.example and parts.settings.examples != "off",
        on_behalf_of=record.on_behalf_of,
        reports=record.reports,
        speaker=await speaker_in(parts, record.scope, message.body, record.kind),
    )
    del how
    reports = ReportTo.read(record.reports)
    most = None if reports is None else reports.limits
    use = await parts.usage.open(record.id, record.scope, again=True, most=most)
    if origin is not None and work.origin is not None:
        record = parts.stores.turns.set_origin(record, origin.to_json(), lease=lease)
    record = replace(record, version=newest(record.version, this_version()), needs=newest(record.needs, LEAST))
    begin = None if recording is None else recording.write_begin
    written, cancelled = await uninterrupted(parts.stores.turns.end(record, "running", lease=lease, each=begin))
    if recording is not None:
        recording.open(lease)
    return Begun(
        turn_id=record.id,
        role=resolution.role,
        emit=emit,
        lease=lease,
        stream=work.deltas,
        role_key=record.role["key"],
        refreshed=refreshed,
        use=use,
        record=written,
        request=request,
        skipped=resolution.skipped_tiers,
        resumed=True,
        announced=announced,
        cancelled=cancelled,
    )


async def _announced(parts: RunnerParts, record: TurnRecord) -> frozenset[str]:
    """Return the pauses whose person was notified before; a turn is recorded as paused only after that."""
    if record.unattended is None or record.status != "paused":
        return frozenset()
    kept = await parts.stores.journal.load(record.id)
    return frozenset(pause_id_of(call.id) for call in kept.values() if call.open or call.answered)
