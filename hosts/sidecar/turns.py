"""The tools that begin or resume a turn. If the client can ask a person, pauses are answered within the call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import TypeGuard

from mcp.types import InputRequiredResult

from ...agent import Thread, Turn, WorldAgent
from ...agent.threads import ThreadState
from ...core.errors import AlreadyAnswered, NothingToResume, ThreadBusy, WorldAgentError
from ...core.pauses import Pause
from ..service import turns
from ..service.arguments import ResumeArguments, SurfaceArguments
from ..service.call import check_resume, owns_turn
from ..service.following import Following, Start
from ..service.pauses import unanswered
from ..service.records import TurnAnswer
from ..service.threads import thread_of
from .asking import Asking, Round
from .following import Progress, ToolCall
from .tasks import TaskJson, create, offers

TurnCall = ToolCall[SurfaceArguments] | ToolCall[ResumeArguments]


async def surface(call: ToolCall[SurfaceArguments], agent: WorldAgent) -> TurnAnswer | InputRequiredResult | TaskJson:
    """Run `converse`, `task`, `run_skill` or `run_scheduled`."""
    thread, asking = thread_of(agent, call, name=call.given.name), Asking(call)
    if asking.round is not None:
        return await _continue_round(call, thread, asking, asking.round)
    await turns.check_start(call, thread)
    start = Start.beginning(call.given, thread)
    return await (create(call, agent, start) if offers(call) else _until_answered(call, thread, asking, start))


async def resume(call: ToolCall[ResumeArguments], agent: WorldAgent) -> TurnAnswer | InputRequiredResult | TaskJson:
    """Run `resume`."""
    thread, asking = thread_of(agent, call), Asking(call)
    if asking.round is not None:
        return await _continue_round(call, thread, asking, asking.round)
    answers = await turns.checked_answers(call, thread)
    call = turns.with_detach(call)
    start = Start.answering(call.given, thread, answers)
    return await (create(call, agent, start) if offers(call) else _until_answered(call, thread, asking, start))


async def _continue_round(
    call: TurnCall, thread: Thread, asking: Asking, before: Round
) -> TurnAnswer | InputRequiredResult:
    """Read a person's answers from a repeated call, after the first call returned questions (revision 2026-07-28)."""
    state, pauses = await thread.state(), unanswered(await thread.pauses())
    if state is None or (state.turn_id, state.thread) != (before.turn, before.thread) or state.status != "paused":
        return await _repeat_lost(call, thread, asking, before)
    own = call.note_turn(state)
    got = await asking.answers(state.turn_id, state.thread, _open_to(call, state, pauses), own=own)
    if isinstance(got, InputRequiredResult):
        return got
    if not got and (pauses or not own):
        return turns.status_answer(call, state, pauses, seen=asking.seen)
    if not got and _has_key(call.given):
        return await _repeat_lost(call, thread, asking, before)
    got = got or {}  # all pauses are answered, possibly by a caller that did not resume the turn
    check_resume(call.caller, state, got.keys(), pauses, changes=turns.has_changes(call.given))
    going = turns.with_detach(call)
    with suppress(AlreadyAnswered, NothingToResume, ThreadBusy):
        found = await _until_answered(going, thread, asking, Start.answering(going.given, thread, got))
        if isinstance(found, InputRequiredResult) or call.facts.sent_events or not _has_key(call.given):
            return found
    # The same call was made twice concurrently, and the other one answered or resumed first.
    return await _repeat_lost(call, thread, asking, before)


async def _repeat_lost(
    call: TurnCall, thread: Thread, asking: Asking, before: Round
) -> TurnAnswer | InputRequiredResult:
    """Answer a call that is repeated because its answer was lost: follow the turn by its key, or report its status.

    Raises:
        NothingToResume: The turn is no longer the thread's newest, and has no key.
        AlreadyAnswered: The turn belongs to another account.
    """
    given = call.given
    if _has_key(given):
        return await _until_answered(call, thread, asking, Start.beginning(given, thread))
    return await _report_status(call, thread, asking, before.turn, before.thread)


async def _report_status(call: TurnCall, thread: Thread, asking: Asking, turn_id: str, of: str) -> TurnAnswer:
    """Report the status of a turn that another call resumed.

    Args:
        call: The call.
        thread: Its thread.
        asking: Knows the last event that was sent to the client.
        turn_id: The id of the turn.
        of: The name of the turn's thread.

    Raises:
        NothingToResume, AlreadyAnswered: As `_repeat_lost`.
    """
    state = await thread.state()
    if state is None or (state.turn_id, state.thread) != (turn_id, of):
        raise NothingToResume(
            "the turn that asked is no longer the thread's newest turn",
            remedy="call `pauses` to see what the thread waits for, and `history` to read its messages",
        )
    if not owns_turn(call.caller, state):
        raise AlreadyAnswered(
            "the turn no longer waits for this answer", remedy="call the tool `pauses` to see what is open"
        )
    call.note_turn(state)
    return turns.status_answer(call, state, unanswered(await thread.pauses()), seen=asking.seen)


async def _until_answered(
    call: TurnCall, thread: Thread, asking: Asking, start: Start
) -> TurnAnswer | InputRequiredResult:
    """Follow a turn, ask a person for its pauses, and resume it, until the call has an answer.

    Args:
        call: The call.
        thread: Its thread.
        asking: Asks the person. It knows the last event that was sent to the client, so that each event is sent once.
        start: Begins or resumes the turn.
    """
    progress = Progress(call, seen=asking.seen)
    async with progress.heartbeats():
        answered = None
        while True:
            try:
                turn = await _follow(call, progress, asking, start)
            except (NothingToResume, ThreadBusy):
                if answered is None:
                    raise
                # The caller that answered has resumed the turn.
                return await _report_status(call, thread, asking, answered.id, answered.thread)
            if turn.status != "paused":
                await _note_needs(call, thread, turn)
                return turns.turn_answer(call, turn, seq=progress.seq)
            state = await thread.state()
            call.facts.needs = () if state is None else state.needs
            own = state is not None and owns_turn(call.caller, state)
            if state is None or not state.recorded:
                asking.seen = 0  # a turn that keeps no events numbers them from 1 in each round
            got = await asking.answers(turn.id, turn.thread, _open_to(call, state, turn.pauses), own=own)
            if isinstance(got, InputRequiredResult):
                return got
            if not got and (turn.pauses or not own or answered):
                return turns.turn_answer(call, turn, seq=progress.seq)
            answered = None if got else turn  # other callers answered, and possibly did not resume the turn
            start = Start.answering(call.given, thread, got or {})


async def _note_needs(call: TurnCall, thread: Thread, turn: Turn) -> None:
    """Record which arguments `resume` needs again, for a turn that is not done."""
    if turn.status == "done":
        return
    with suppress(WorldAgentError):  # a sidecar that ends closes its agents meanwhile; the answer must still be sent
        state = await thread.state()
        if state is not None and state.turn_id == turn.id:
            call.facts.needs = state.needs


def _has_key(given: SurfaceArguments | ResumeArguments) -> TypeGuard[SurfaceArguments]:
    """Whether a repeated call finds its turn by a key, with all events and the answer."""
    return isinstance(given, SurfaceArguments) and given.key is not None


def _open_to(call: TurnCall, state: ThreadState | None, pauses: Sequence[Pause]) -> Sequence[Pause]:
    """Return the pauses that the caller can answer. A later check decides whether each accepts their account."""
    if state is None or owns_turn(call.caller, state):
        return pauses
    return [pause for pause in pauses if pause.approvers]


async def _follow(call: TurnCall, progress: Progress, asking: Asking, start: Start) -> Turn:
    following = Following(call.parts.agents, call.caller.workspace, start, detach=bool(call.given.detach))
    del start
    try:
        async with aclosing(following.events_after(progress.last_seen)) as events:
            async for event in events:
                call.facts.turn = following.turn_id
                await progress.send(event)
        turn = await following.outcome()
        call.facts.turn = turn.id
        return turn
    except WorldAgentError as error:
        error.turn_id = error.turn_id or following.turn_id
        raise
    finally:
        asking.seen, call.facts.kept = progress.seq, following.kept
        call.facts.sent_events |= following.sent_events
        following.stop()
