"""Runs a turn in its own task, while a call follows it. Events wait for the call in a bounded buffer.

When the call is cancelled, it stops following. `detach` decides whether the turn then continues.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams

from ...agent import Thread, Turn, TurnStream, WorldAgent
from ...agent.threads import ThreadState
from ...core import utc_text
from ...core.errors import UnknownTurn
from ...core.events import Event, ReasoningDelta, TurnEnded, TurnStarted
from ...core.pauses import Pause
from ..service.answers import pause_record
from ..service.arguments import EventsArguments, WorkspaceArguments
from ..service.call import Call, Refused
from ..service.next_steps import to_call
from ..service.pauses import unanswered
from ..service.records import EventsAnswer, TurnRecord
from .client_roles import ClientRoles
from .pool import Agents, Limits

A = TypeVar("A", bound=WorkspaceArguments)
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarParts:
    """The parts that all calls share.

    Attributes:
        agents: The agents by workspace.
        limits: The limits of the sidecar.
        ending: Set when the sidecar ends; calls that wait for events then stop.
        client_roles: The roles of the single client, for a client that can keep roles.
    """

    agents: Agents
    limits: Limits
    ending: asyncio.Event
    client_roles: ClientRoles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Call[A]):
    """A call of a tool, with its request.

    Attributes:
        parts: The parts that all calls share.
        ctx: The request.
        params: Its params. When a client repeats the call with a person's answers, they hold these too.
    """

    parts: SidecarParts
    ctx: Context = field(repr=False)
    params: CallToolRequestParams = field(repr=False)

    @property
    def is_repeated(self) -> bool:
        """See `Call`."""
        return self.params.request_state is not None

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token."""
        meta: Mapping[str, Any] = self.ctx.meta or {}
        return meta.get("progress_token", meta.get("progressToken")) is not None


PROGRESS_STEP: Final = 1e-7  # added to the progress number by messages without an event number; it must always increase


class Progress:
    """Sends the events of one call, if its client wants progress.

    Args:
        call: The call.
        seen: The number of the last event that the client has from an earlier round of the call.
    """

    def __init__(self, call: ToolCall[Any], *, seen: int = 0) -> None:
        self._session = call.ctx.session
        self._facts = call.facts
        self._stall, self._pause = call.parts.limits.reader_stall, call.parts.limits.heartbeat
        self._after: int = max(call.given.after, seen)
        self._last_seen: int | None = self._after if seen or "after" in call.given.model_fields_set else None
        self._wanted = call.wants_progress
        self._offset = 0
        self._seq = 0
        self._sending = asyncio.Lock()
        self._number = float(self._after)  # the last progress number that was sent
        self._sent_at = 0.0

    @property
    def seq(self) -> int:
        """The number of the last event that the client has or does not need, from this call or from before."""
        return max(self._seq, self._after)

    @property
    def last_seen(self) -> int | None:
        """The number of the last event that the client has; None if that is unknown or the client wants no events."""
        last_seen = self._seq or self._last_seen
        return last_seen if self._wanted and not self._offset else None

    async def send(self, event: Event) -> None:
        """Send one event, unless the client has it.

        Raises:
            Refused: The client does not read (`reader_behind`).
        """
        if isinstance(event, ReasoningDelta):
            if self._wanted:  # like a heartbeat, it carries the number of the last event
                await self._send_message(
                    self._number + PROGRESS_STEP, {**event.model_dump(mode="json"), "seq": self.seq}
                )
            return
        # A turn that keeps no events numbers them from 1 in each run. The offset makes them increase within a call.
        if event.seq + self._offset <= self._seq:
            self._offset = self._seq
        self._seq = event.seq + self._offset
        if not self._wanted or self._seq <= self._after:
            return
        payload = event.model_copy(update={"seq": self._seq}) if self._offset else event
        await self._send_message(self._seq, payload)

    async def _send_message(self, number: float, event: Event | dict[str, Any]) -> None:
        late = False
        try:
            async with asyncio.timeout(self._stall):
                await self._report(number, json.dumps(event) if isinstance(event, dict) else event.model_dump_json())
        except TimeoutError:
            late = True
        if late:
            raise behind(self._facts.turn)

    @asynccontextmanager
    async def heartbeats(self) -> AsyncGenerator[None]:
        """Send heartbeats inside the block, if the client wants progress and no event was sent for a while."""
        if not self._wanted:
            yield
            return
        beating = asyncio.create_task(self._beat())
        # If the client cannot be reached, heartbeats end silently; sending the next event then raises the error.
        beating.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            yield
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        clock = asyncio.get_running_loop().time
        self._sent_at = clock()
        while True:
            await asyncio.sleep(max(self._sent_at + self._pause - clock(), 0))
            if clock() < self._sent_at + self._pause:
                continue
            # Its `seq` is that of the last event, so a client that stores the last `seq` loses no event.
            payload = {"v": 1, "turn_id": self._facts.turn, "seq": self.seq, "at": utc_text(datetime.now(UTC))}
            with suppress(Refused):  # the next event says that the client does not read
                await self._send_message(self._number + PROGRESS_STEP, {**payload, "type": "heartbeat"})

    async def _report(self, number: float, message: str) -> None:
        async with self._sending:
            if number > self._number:  # otherwise an event was sent while a heartbeat waited
                self._number = number
                await self._session.report_progress(number, message=message)
            self._sent_at = asyncio.get_running_loop().time()


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


class Following:
    """A turn that a call follows.

    The library cancels the handler of a call whose client has disconnected, again and again until it exits. So a task
    holds the stream and keeps the agent open, and the handler only reads events.

    Args:
        parts: Its agents count the turn, and its limits say how far behind the client can be.
        workspace: The workspace of the turn.
        start: Begins or resumes the turn.
        detach: Whether the turn continues when the call stops following it.

    Attributes:
        turn_id: The id of the turn, once it is known.
        kept: How many answers of a person were saved, even if the turn failed afterwards.
    """

    def __init__(self, parts: SidecarParts, workspace: str, start: Start, *, detach: bool) -> None:
        self._parts = parts
        self._detach = detach
        self._entered: asyncio.Future[TurnStream] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        self.turn_id: str | None = None
        self.kept = 0
        self._task = parts.agents.spawn(self._run(workspace, start))

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events, up to the end of this run of the turn.

        Events of a recorded turn wait in the log, those of another turn in memory.

        Raises:
            WorldAgentError: The error with which the turn failed.
            Refused: The turn did not begin, or the client is too far behind a turn that keeps no events.
        """
        waited: set[asyncio.Future[Any]] = {self._task, self._entered}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not self._entered.done():
            return
        stream = self._entered.result()
        async for event in stream:
            yield event
            if not stream.recorded and stream.behind >= self._parts.limits.reader_lag:
                raise behind(self.turn_id)

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

    async def _run(self, workspace: str, start: Start) -> Turn:
        agents = self._parts.agents
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
        """Count the turn. In a full workspace, allow a start that would only repeat an existing turn.

        Raises:
            Refused: The workspace is full.
        """
        agents, key = self._parts.agents, start.key
        place: object = object() if key is None else (start.thread.scope.thread, key)
        if key is not None and not agents.has_room(workspace, place) and await start.thread.repeats(key):
            return nullcontext()
        return agents.turn(workspace, place)


# --- the tool `events` ------------------------------------------------------------------------------------------------

MIN_WAIT_SECONDS = 0.25  # seconds for reading the available events if the client does not want to wait
READ_ALL_SECONDS = 10.0  # seconds for reading all events of a turn that no longer runs
QUIET_SECONDS = 0.02  # seconds without another event, after which the answer is sent


@dataclass(slots=True)
class _Read:
    """What a call of `events` has read.

    Attributes:
        seq: The number of the last event.
        ended: Whether the events of the run have ended.
        started, over: Events of the turn with facts for its record.
        events: The events for the answer.
    """

    seq: int
    ended: bool = False
    started: TurnStarted | None = None
    over: TurnEnded | None = None
    events: list[Event] = field(default_factory=list)


async def events(call: ToolCall[EventsArguments], agent: WorldAgent) -> EventsAnswer:
    """Run `events`: attach to a turn again. It reads the log with a cursor, so slow clients need no buffer."""
    turn_id = call.given.turn_id
    state = await _reached(call, agent)
    call.facts.thread, call.facts.turn = state.thread, turn_id
    progress, read = Progress(call), _Read(call.given.after)
    async with progress.heartbeats():
        reading = asyncio.ensure_future(_read_events(call, agent, progress, read, running=state.status == "running"))
        ending = asyncio.ensure_future(call.parts.ending.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            reading.cancel()
    if reading.done() and not reading.cancelled():
        reading.result()
    state = await _reached(call, agent)
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
    return EventsAnswer(
        turn=_record(read, state, pauses),
        seq=read.seq,
        next=made,
        events=[json.loads(event.model_dump_json()) for event in read.events],
    )


async def _read_events(
    call: ToolCall[EventsArguments], agent: WorldAgent, progress: Progress, read: _Read, *, running: bool
) -> None:
    """Send the events as progress up to the end of the run; without progress, collect the available ones.

    Of a running turn, it waits up to `wait` seconds for the first event. The events of a turn that no longer runs have
    an end, so it reads all of them.
    """
    given, wanted, clock = call.given, call.wants_progress, asyncio.get_running_loop().time
    seconds = None if wanted else max(given.wait, MIN_WAIT_SECONDS) if running else READ_ALL_SECONDS
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds) as limit:
            async for event in agent.events(given.turn_id, after=given.after):
                await progress.send(event)
                read.seq = event.seq
                if isinstance(event, TurnStarted):
                    read.started = event
                elif isinstance(event, TurnEnded):
                    read.over = event
                if wanted:
                    continue
                read.events.append(event)
                if len(read.events) == given.limit:
                    return
                if running:
                    limit.reschedule(clock() + QUIET_SECONDS)
            read.ended = True


async def _reached(call: ToolCall[EventsArguments], agent: WorldAgent) -> ThreadState:
    """Return the state of the turn.

    Raises:
        UnknownTurn: The turn does not exist, or the token does not reach it. The error does not reveal which.
    """
    state = await agent.turn(call.given.turn_id)
    if state is not None and call.caller.grant.allows_thread(state.thread):
        return state
    raise UnknownTurn(
        "the token reaches no turn of the workspace with this id", remedy="give the id that the turn's answer had"
    )


def _record(read: _Read, state: ThreadState, pauses: tuple[Pause, ...]) -> TurnRecord:
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
            "role_tiers": None if read.started is None else [tier.value for tier in state.role_tiers],
            "pauses": [pause_record(pause) for pause in pauses],
        }
    )
