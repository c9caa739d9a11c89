"""The tools that begin a turn or go on with one, with a person's answers through the client where it can ask."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeGuard

from mcp.types import InputRequiredResult

from ....agent import UNSET, Thread, Trigger, Turn, TurnStream, WorldAgent
from ....agent.threads import ThreadState
from ....core.errors import AlreadyAnswered, EventsGone, InvalidArgument, NothingToResume, ThreadBusy, WorldAgentError
from ....core.events import ReasoningDelta
from ....core.pauses import Pause, PersonAnswer
from ....graphs import Composed
from ...pauses import unanswered
from ..contract.surfaces import (
    ConverseArguments,
    ResumeArguments,
    ScheduledArguments,
    SkillArgument,
    SkillArguments,
    SurfaceArguments,
    TaskArguments,
)
from ..contract.turns import TurnAnswer
from ..pauses import Asking, Round, read_answers
from ..people import check_resume, is_of
from .answering import standing, turn_answer
from .call import Call, role_of, thread_of
from .following import Following, Keyed, Start
from .progress import Progress

Going = Call[SurfaceArguments] | Call[ResumeArguments]


async def surface(call: Call[SurfaceArguments], agent: WorldAgent) -> TurnAnswer | InputRequiredResult:
    """Run `converse`, `task`, `run_skill` or `run_scheduled`."""
    thread, asking = thread_of(agent, call, name=call.given.name), _asking(call)
    if asking.round is not None:
        return await _come_again(call, thread, asking, asking.round)
    return await _until_answered(call, thread, asking, _beginning(call.given, thread))


async def resume(call: Call[ResumeArguments], agent: WorldAgent) -> TurnAnswer | InputRequiredResult:
    """Run `resume`."""
    going: Going = call
    given, thread, asking = call.given, thread_of(agent, call), _asking(call)
    if asking.round is not None:
        return await _come_again(call, thread, asking, asking.round)
    pauses = unanswered(await thread.pauses())
    state = await thread.state()
    if state is not None:  # first: whose turn it is not learns neither who may answer nor how
        call.meets(state)
        check_resume(call.caller, state, given.answers.keys(), pauses, changes=_says_more(given))
        going = _as_it_began(call, state)
    answers = read_answers(given.answers, pauses, account=call.caller.account)
    return await _until_answered(going, thread, asking, _answering(going.given, thread, answers))


def _as_it_began(call: Going, state: ThreadState) -> Going:
    """A call that says whether its turn goes on without the client: where it leaves that open, as the turn began."""
    if not _resumes(call) or call.given.detach is not None:
        return call
    # One that was begun with `detach` or with a key keeps its events.
    return replace(call, given=call.given.model_copy(update={"detach": state.recorded}))


def _resumes(call: Going) -> TypeGuard[Call[ResumeArguments]]:
    return isinstance(call.given, ResumeArguments)


def _asking(call: Going) -> Asking:
    wanted = call.given.pauses == "elicit"
    return Asking.of(call.ctx, call.params, account=call.caller.account, wanted=wanted)


async def _come_again(call: Going, thread: Thread, asking: Asking, before: Round) -> TurnAnswer | InputRequiredResult:
    """Take what a person said since the same call was answered with questions (revision 2026-07-28)."""
    state, pauses = await thread.state(), unanswered(await thread.pauses())
    if state is None or (state.turn_id, state.thread) != (before.turn, before.thread) or state.status != "paused":
        return await _moved_on(call, thread, asking, before)
    own = call.meets(state)
    got = await asking.answers(state.turn_id, state.thread, _open_to(call, state, pauses), own=own)
    if isinstance(got, InputRequiredResult):
        return got
    if not got and (pauses or not own):
        return standing(call, state, pauses, seen=asking.seen)
    if not got and _has_key(call.given):
        return await _moved_on(call, thread, asking, before)
    got = got or {}  # all is answered; whoever did that may not have come to go on
    check_resume(call.caller, state, got.keys(), pauses, changes=_says_more(call.given))
    going = _as_it_began(call, state)
    with suppress(AlreadyAnswered, NothingToResume, ThreadBusy):
        found = await _until_answered(going, thread, asking, _answering(going.given, thread, got))
        if isinstance(found, InputRequiredResult) or call.noted.told or not _has_key(call.given):
            return found
    # The same call was made twice at once, and the other one was first to answer, or to go on.
    return await _moved_on(call, thread, asking, before)


async def _moved_on(call: Going, thread: Thread, asking: Asking, before: Round) -> TurnAnswer | InputRequiredResult:
    """Answer a call that is made again since its answer was lost: follow the turn by its key, or tell how it stands.

    Raises:
        NothingToResume: The turn is no longer the thread's newest, and has no key.
        AlreadyAnswered: It is another account's.
    """
    given = call.given
    if _has_key(given):
        return await _until_answered(call, thread, asking, _beginning(given, thread))
    return await _as_it_stands(call, thread, asking, before.turn, before.thread)


async def _as_it_stands(call: Going, thread: Thread, asking: Asking, turn_id: str, of: str) -> TurnAnswer:
    """Tell what became of a turn that another call goes on with.

    Args:
        call: The call.
        thread: Its thread.
        asking: Knows the last event that the client has been sent.
        turn_id: The turn.
        of: The name of the turn's thread.

    Raises:
        NothingToResume, AlreadyAnswered: As `_moved_on`.
    """
    state = await thread.state()
    if state is None or (state.turn_id, state.thread) != (turn_id, of):
        raise NothingToResume(
            "the turn that was asked about is no longer the thread's newest",
            remedy="look at what the thread waits for with pauses, and at what was said with history",
        )
    if not is_of(call.caller, state):
        raise AlreadyAnswered(
            "nobody waits for the answer any more", remedy="call the tool `pauses` to see what is open"
        )
    call.meets(state)
    return standing(call, state, unanswered(await thread.pauses()), seen=asking.seen)


async def _until_answered(
    call: Going, thread: Thread, asking: Asking, start: Start
) -> TurnAnswer | InputRequiredResult:
    """Follow a turn, ask a person what it asks, and go on, until there is an answer to the call.

    Args:
        call: The call.
        thread: Its thread.
        asking: Asks the person, and knows the last event that the client has been sent, of which each is sent once.
        start: Begins the turn, or goes on with it.
    """
    progress = Progress(call, seen=asking.seen)
    async with progress.heartbeats():
        return await _followed(call, thread, asking, start, progress)


async def _followed(
    call: Going, thread: Thread, asking: Asking, start: Start, progress: Progress
) -> TurnAnswer | InputRequiredResult:
    answered = None
    while True:
        try:
            turn = await _noting(call, progress, asking, start)
        except (NothingToResume, ThreadBusy):
            if answered is None:
                raise
            # Whoever answered has gone on.
            return await _as_it_stands(call, thread, asking, answered.id, answered.thread)
        if turn.status != "paused":
            await _note_needs(call, thread, turn)
            return turn_answer(call, turn, seq=progress.seq)
        state = await thread.state()
        call.noted.needs = () if state is None else state.needs
        own = state is not None and is_of(call.caller, state)
        if state is None or not state.recorded:
            asking.seen = 0  # such a turn counts from 1 in each round
        got = await asking.answers(turn.id, turn.thread, _open_to(call, state, turn.pauses), own=own)
        if isinstance(got, InputRequiredResult):
            return got
        if not got and (turn.pauses or not own or answered):
            return turn_answer(call, turn, seq=progress.seq)
        answered = None if got else turn  # by others, and whoever did that may not have come to go on
        start = _answering(call.given, thread, got or {})


async def _note_needs(call: Going, thread: Thread, turn: Turn) -> None:
    """Note what `resume` must be given again, for a turn that stopped."""
    if turn.status == "done":
        return
    with suppress(WorldAgentError):  # a sidecar that ends closes its agents meanwhile; the answer is what counts
        state = await thread.state()
        if state is not None and state.turn_id == turn.id:
            call.noted.needs = state.needs


def _has_key(given: SurfaceArguments | ResumeArguments) -> TypeGuard[SurfaceArguments]:
    """Whether a call that is made again finds its turn by a key, with all its events and its answer."""
    return isinstance(given, SurfaceArguments) and given.key is not None


def _says_more(given: SurfaceArguments | ResumeArguments) -> bool:
    """Whether a call says more of how a turn goes on than answers."""
    if not isinstance(given, ResumeArguments):
        return True  # it began the turn, and brings what it began with
    return "role" in given.model_fields_set or given.skill is not None or given.on_role_change != "fail"


def _open_to(call: Going, state: ThreadState | None, pauses: Sequence[Pause]) -> Sequence[Pause]:
    """Which pauses are the caller's to answer; whether a pause takes their account is looked at later."""
    if state is None or is_of(call.caller, state):
        return pauses
    return [pause for pause in pauses if pause.approvers]


async def _noting(call: Going, progress: Progress, asking: Asking, start: Start) -> Turn:
    try:
        return await _follow(call, progress, start)
    finally:
        asking.seen = progress.seq


async def _follow(call: Going, progress: Progress, start: Start) -> Turn:
    house, given = call.house, call.given
    following = Following(
        house.agents, call.caller.workspace, start, lag=house.limits.reader_lag, detach=bool(given.detach)
    )
    del start
    try:
        told = False
        async for event in following.events():
            call.noted.turn = following.turn_id
            if not told and not isinstance(event, ReasoningDelta):
                await _catch_up(call, progress, event.turn_id, upto=event.seq)
                told = call.noted.told = True
            await progress.send(event)
        turn = following.outcome()
        call.noted.turn = turn.id
        if not told and turn.status == "done":  # somebody else came to its end meanwhile
            await _catch_up(call, progress, turn.id)
        return turn
    finally:
        call.noted.kept = following.kept
        following.leave()


async def _catch_up(call: Going, progress: Progress, turn_id: str, *, upto: int | None = None) -> None:
    """Send what other runs at a turn told behind what the client has; `upto` is the first event of this one."""
    after = progress.has
    if after is None or (upto is not None and upto <= after + 1):
        return
    # Of a turn that keeps none, or no more; or none up to there, which whoever goes on with it need not know.
    with suppress(EventsGone, InvalidArgument):
        async with call.house.agents.use(call.caller.workspace) as agent:
            async for event in agent.events(turn_id, after=after):
                if upto is not None and event.seq >= upto:
                    return
                await progress.send(event)


def _answering(given: SurfaceArguments | ResumeArguments, thread: Thread, answers: dict[str, PersonAnswer]) -> Start:
    return Start(lambda: _go_on(given, thread, answers), answers=len(answers))


def _beginning(given: SurfaceArguments, thread: Thread) -> Start:
    key = given.key
    keyed = None if key is None else Keyed((given.thread, key), lambda: thread.repeats(key))
    return Start(lambda: _begin(given, thread), keyed=keyed)


async def _begin(given: SurfaceArguments, thread: Thread) -> TurnStream:
    how: dict[str, Any] = {
        "role": role_of(given.role),
        "model": given.model,
        "key": given.key,
        "detach": given.detach,
        "unattended": given.unattended,
    }
    match given:
        case ConverseArguments():
            return thread.stream(given.text, output=given.output, **how)
        case TaskArguments():
            return thread.stream_task(given.shape, given.params, **how)
        case SkillArguments():
            return thread.stream_skill(_skill_of(given.skill), given.params, **how)
        case ScheduledArguments():
            fired = datetime.fromisoformat(given.fired_at)
            trigger = Trigger(schedule=given.schedule, fired_at=fired, payload=given.payload)
            return thread.stream_scheduled(trigger, **how)
        case _:
            raise AssertionError(f"no surface takes {type(given).__name__}")


async def _go_on(
    given: SurfaceArguments | ResumeArguments, thread: Thread, answers: dict[str, PersonAnswer]
) -> TurnStream:
    """Go on with the thread's turn; a call that began it brings its own role and skill again."""
    again = isinstance(given, ResumeArguments)
    left_out = again and "role" not in given.model_fields_set
    skill = given.skill if isinstance(given, ResumeArguments | SkillArguments) else None
    return thread.stream_resume(
        answers,
        role=UNSET if left_out else role_of(given.role),
        on_role_change=given.on_role_change if isinstance(given, ResumeArguments) else "fail",
        skill=None if skill is None else _skill_of(skill),
        detach=bool(given.detach),
    )


def _skill_of(given: SkillArgument) -> Composed:
    return Composed(given.prompt, shape=given.shape, params=given.params, name=given.name)


__all__ = ["resume", "surface"]
