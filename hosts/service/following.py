"""Runs a turn in its own task, while a call follows it. Events wait for the call in a bounded buffer.

When the call is cancelled, it stops following. `detach` decides whether the turn then continues.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from ...agent import Thread, Turn, TurnStream, Withheld, WorldAgent
from ...agent.threads import ThreadState
from ...core.checks import to_json
from ...core.errors import EventsGone, InvalidArgument, UnknownTurn
from ...core.events import RoleWithheld, TurnEnded, TurnEvent, TurnStarted, UnnumberedEvent
from ...core.pauses import Pause, PersonAnswer
from ...memory.attachments import AttachmentSource
from . import turns
from .answers import pause_record
from .arguments import EventsArguments, ResumeArguments, SurfaceArguments, TurnFeedbackArguments
from .call import Call, Refused, check_turn
from .next_steps import to_call
from .operation import operation
from .pauses import unanswered
from .pool import Agents
from .records import EventsAnswer, TurnAnswer, TurnFeedbackAnswer, TurnRecord

if TYPE_CHECKING:
    from .home import Workspace


def behind(turn_id: str | None) -> Refused:
    """Return the refusal of a client that reads too slowly."""
    return Refused(
        "reader_behind",
        "the client reads events more slowly than the turn sends them",
        remedy="if the turn began with detach or a key, call `events` with the last number you received as `after`",
        turn_id=turn_id,
    )


@dataclass(frozen=True, slots=True)
class Start:
    """Begins or resumes a turn.

    Attributes:
        stream: Returns the stream that begins or resumes it.
        thread: Its thread.
        answers: How many answers of a person it passes to the turn.
        key: The idempotency key, if it begins a turn with one.
    """

    stream: Callable[[], TurnStream] = field(repr=False)
    thread: Thread = field(repr=False)
    answers: int = 0
    key: str | None = None

    @classmethod
    def beginning(cls, given: SurfaceArguments, thread: Thread, attachments: Sequence[AttachmentSource] = ()) -> Self:
        """Return what begins the turn that the arguments describe."""
        return cls(lambda: turns.begin(given, thread, attachments), thread, key=given.key)

    @classmethod
    def answering(
        cls, given: SurfaceArguments | ResumeArguments, thread: Thread, answers: dict[str, PersonAnswer]
    ) -> Self:
        """Return what resumes the thread's turn with a person's answers, by pause id."""
        return cls(lambda: turns.resume(given, thread, answers), thread, answers=len(answers))


class Following:
    """A turn that a call follows.

    The library cancels the handler of a call whose client has disconnected, again and again until it exits. So a task
    holds the stream and keeps the agent open, and the handler only reads events.

    Args:
        agents: They count the turn, and their limits say how far behind the client can be.
        workspace: The workspace of the turn.
        start: Begins or resumes the turn.
        detach: Whether the turn continues when the call stops following it.

    Attributes:
        turn_id: The id of the turn, once it is known.
        kept: How many answers of a person were saved, even if the turn failed afterwards.
        sent_events: Whether its run sent an event with a number.
    """

    def __init__(self, agents: Agents, workspace: str, start: Start, *, detach: bool) -> None:
        self._agents, self._workspace = agents, workspace
        self._detach = detach
        self._entered: asyncio.Future[TurnStream] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        self.turn_id: str | None = None
        self.kept = 0
        self.sent_events = False
        self._task = agents.spawn(self._run(workspace, start))

    async def entered(self) -> None:
        """Wait until the answers of a person are saved.

        Raises:
            WorldAgentError, Refused: They were not accepted.
        """
        await self._until_entered()
        if not self._entered.done():
            self._task.result()

    async def begun(self) -> None:
        """Wait until the turn has begun or resumed and is stored, so that any process finds it.

        Raises:
            WorldAgentError, Refused: It has not begun, or has already failed.
        """
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, TurnStarted):
                    return
        await self.outcome()

    async def events(self) -> AsyncGenerator[TurnEvent]:
        """Yield the events, up to the end of this run of the turn.

        Events of a recorded turn wait in the log, those of another turn in memory.

        Raises:
            WorldAgentError: The error with which the turn failed.
            Refused: The turn did not begin, or the client is too far behind a turn that keeps no events.
        """
        await self._until_entered()
        if not self._entered.done():
            return
        stream = self._entered.result()
        async for event in stream:
            yield event
            if not stream.recorded and stream.behind >= self._agents.limits.reader_lag:
                raise behind(self.turn_id)

    async def events_after(self, after: int | None) -> AsyncGenerator[TurnEvent]:
        """Yield the events as `events` does, and before them those of earlier runs that the client does not have.

        Args:
            after: The number of the last event that the client has; None yields no events of earlier runs.
        """
        async for event in self.events():
            if not self.sent_events and not isinstance(event, UnnumberedEvent):
                self.sent_events = True
                async with aclosing(self._earlier(event.turn_id, after, before=event.seq)) as earlier:
                    async for each in earlier:
                        yield each
            yield event
        if self.sent_events:
            return
        turn = await self.outcome()
        if turn.status == "done":  # another call brought it to its end
            async with aclosing(self._earlier(turn.id, after)) as earlier:
                async for each in earlier:
                    yield each

    async def _earlier(self, turn_id: str, after: int | None, before: int | None = None) -> AsyncGenerator[TurnEvent]:
        """Yield the stored events between two numbers; none if the turn does not keep them."""
        if after is None or (before is not None and before <= after + 1):
            return
        with suppress(EventsGone, InvalidArgument):  # the client need not know
            async with self._agents.use(self._workspace) as agent:
                async for event in agent.events(turn_id, after=after):
                    if before is not None and event.seq >= before:
                        return
                    yield event

    async def outcome(self) -> Turn:
        """Return the turn, after its last event.

        Raises:
            WorldAgentError, Refused: The error with which it failed.
        """
        if self._entered.done():
            return await self._entered.result().wait()
        return await self._task

    def stop(self) -> None:
        """Stop following: the client has disconnected, or has its answer."""
        self._stopped.set()
        if not self._detach and not self._task.done() and not self._task.cancelling():
            self._task.cancel()

    async def _until_entered(self) -> None:
        waited: set[asyncio.Future[Any]] = {self._task, self._entered}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    async def _run(self, workspace: str, start: Start) -> Turn:
        agents = self._agents
        async with agents.use(workspace):
            with await self._counted(workspace, start):
                stream, answers = start.stream(), start.answers
                del start  # it holds the call's role
                async with stream:
                    self.kept = answers  # entering the stream saves them
                    self.turn_id = stream.turn_id
                    self._entered.set_result(stream)
                    turn = await stream.wait()
                    await self._stopped.wait()  # the client may still read
                    return turn

    async def _counted(self, workspace: str, start: Start) -> AbstractContextManager[None]:
        """Count the turn. At a limit, allow a start that would only repeat an existing turn.

        Raises:
            Refused: The workspace or the account has reached its limit.
        """
        agents, key, scope = self._agents, start.key, start.thread.scope
        turn = scope.account, object() if key is None else (scope.thread, key)
        if key is not None and agents.too_many(workspace, turn) and await start.thread.repeats(key):
            return nullcontext()
        return agents.turn(workspace, turn)


# --- turns that the call did not begin ------------------------------------------------------------------------------


@dataclass(slots=True)
class EventsRead:
    """What a call has read of a turn that it did not begin.

    Attributes:
        seq: The number of the last event.
        ended: Whether the events of the run have ended.
        started, over, withheld: Events of the turn with facts for its record.
        events: The events for the answer.
    """

    seq: int
    ended: bool = False
    started: TurnStarted | None = None
    over: TurnEnded | None = None
    withheld: list[RoleWithheld] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)

    def note(self, event: TurnEvent) -> None:
        """Note an event that was read."""
        self.seq = event.seq
        if isinstance(event, TurnStarted):
            self.started = event
        elif isinstance(event, TurnEnded):
            self.over = event
        elif isinstance(event, RoleWithheld):
            self.withheld.append(event)


QUIET_SECONDS: Final = 0.02  # seconds without another event, after which an answer with events is sent


async def collect(
    read: EventsRead, events: AsyncIterator[TurnEvent], *, limit: int, seconds: float, waits: bool = True
) -> None:
    """Read the events of a turn for an answer, up to the end of its run.

    Args:
        read: Takes the events.
        events: The events.
        limit: The most that it takes.
        seconds: How long it reads.
        waits: Whether `seconds` is for the first event alone, and the others are those that are there by then.
    """
    clock = asyncio.get_running_loop().time
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds) as time:
            async for event in events:
                read.note(event)
                read.events.append(event)
                if len(read.events) == limit:
                    return
                if waits:
                    time.reschedule(clock() + QUIET_SECONDS)
            read.ended = True


async def reached_turn(call: Call[Any], workspace: Workspace) -> ThreadState:
    """Return the state of the turn that a call names.

    Raises:
        UnknownTurn: The turn does not exist, or the token does not reach it. The error does not reveal which.
    """
    state = await workspace.turn(call.given.turn_id)
    if state is not None and call.caller.grant.allows_thread(state.thread):
        return state
    raise UnknownTurn(
        "the token reaches no turn of the workspace with this id", remedy="give the id that the turn's answer had"
    )


@operation(
    "Rate a turn",
    "Say whether a turn was good or bad, in place of what was said before. Examples for optimising carry it, and "
    "what members did in the turn counts as good or bad.",
    effect="changes",
)
async def turn_feedback(call: Call[TurnFeedbackArguments], workspace: Workspace) -> TurnFeedbackAnswer:
    """Store what a person thinks of a turn, in place of any earlier feedback.

    Raises:
        UnknownTurn: As for `reached_turn`.
        Refused: The turn belongs to another account.
    """
    given, state = call.given, await reached_turn(call, workspace)
    check_turn(call.caller, state)
    thread = workspace.thread(state.thread, account=call.caller.account, channel=state.channel)
    await thread.feedback(given.turn_id, given.feedback, note=given.note)
    return TurnFeedbackAnswer()


async def read_answer(call: Call[EventsArguments], agent: WorldAgent, read: EventsRead) -> TurnAnswer:
    """Return the turn as far as it was read, and what the caller can call next.

    Args:
        call: The call.
        agent: The agent.
        read: What was read.

    Raises:
        UnknownTurn: As for `reached_turn`.
    """
    turn_id, state = call.given.turn_id, await reached_turn(call, agent)
    pauses: tuple[Pause, ...] = ()
    if state.status == "paused":
        thread = agent.thread(state.thread, account=call.caller.account, channel=state.channel)
        pauses = unanswered(await thread.pauses())
    ids = call.ids | {"thread": state.thread} | ({} if state.channel is None else {"channel": state.channel})
    shown_status = state.status if read.ended else "running"  # the client must read more events first
    call.note_turn(state)
    made = to_call(call, shown_status, turn_id, pauses, seq=read.seq, ids=ids)
    if shown_status != state.status:
        made = [made[0].model_copy(update={"why": "there are more of its events"})]
    return TurnAnswer(turn=_record(read, state, pauses), seq=read.seq, next=made)


async def events_answer(call: Call[EventsArguments], agent: WorldAgent, read: EventsRead) -> EventsAnswer:
    """As `read_answer`, with the events that were read for the answer."""
    answer = await read_answer(call, agent, read)
    return EventsAnswer(**dict(answer), events=[json.loads(event.model_dump_json()) for event in read.events])


def _record(read: EventsRead, state: ThreadState, pauses: tuple[Pause, ...]) -> TurnRecord:
    """Return the turn as far as it is known here. Facts from its events are present only if this call read them."""
    over = read.over if read.over is not None and read.over.status == state.status else None
    typed = over is not None and over.status == "done" and state.kind in ("task", "skill")
    return TurnRecord.model_validate(
        {
            "id": state.turn_id,
            "thread": state.thread,
            "status": state.status,
            "text": None if over is None else over.text,
            "result": json.loads(over.text) if typed and over is not None else None,
            "outputs": {} if over is None else over.outputs,
            "labels": {} if over is None else over.labels,
            "role_tiers": None if read.started is None else [tier.value for tier in state.role_tiers],
            "withheld": to_json(Withheld.of(read.withheld)) if read.started and read.withheld else None,
            "pauses": [pause_record(pause) for pause in pauses],
        }
    )
