"""Runs a turn in its own task, while a call follows it. Events wait for the call in a bounded buffer.

When the call is cancelled, it stops following. `detach` decides whether the turn then continues.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams

from ...agent import Turn, TurnStream, WorldAgent
from ...agent.threads import ThreadState
from ...core import utc_text
from ...core.errors import UnknownTurn, WorldAgentError
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
            with suppress(TimeoutError):
                async with asyncio.timeout(self._stall):
                    await self._report(self._number + PROGRESS_STEP, json.dumps({**payload, "type": "heartbeat"}))

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
class Keyed:
    """Identifies a start with an idempotency key.

    Attributes:
        place: Equal for two starts of the same turn.
        repeats: Whether the start would return an existing turn and run none.
    """

    place: tuple[str, str]
    repeats: Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Start:
    """Begins or resumes a turn.

    Attributes:
        stream: Returns the stream that begins or resumes it.
        answers: How many answers of a person it passes to the turn.
        keyed: Identifies the start, if it begins a turn with a key.
    """

    stream: Callable[[], TurnStream] = field(repr=False)
    answers: int = 0
    keyed: Keyed | None = None


class Following:
    """A turn that a call follows.

    A recorded turn waits with its next event until the buffer has room. A turn that keeps no events does not wait: if
    the buffer is full, the call fails.

    Args:
        agents: Counts the turn, and owns the task that runs it.
        workspace: The workspace of the turn.
        start: Begins or resumes the turn.
        lag: The most events that wait here for the client.
        detach: Whether the turn continues when the call stops following it.

    Attributes:
        turn_id: The id of the turn, once it is known.
        kept: How many answers of a person were saved, even if the turn failed afterwards.
    """

    def __init__(self, agents: Agents, workspace: str, start: Start, *, lag: int, detach: bool) -> None:
        self._agents = agents
        self._lag = lag
        self._detach = detach
        self._keyed = start.keyed
        self._waiting: deque[Event] | None = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._behind = False
        self.turn_id: str | None = None
        self.kept = 0
        self._answers = start.answers
        self._task = agents.spawn(self._run(workspace, start.stream))
        self._task.add_done_callback(lambda _: self._news.set())

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events, up to the end of this run of the turn.

        Raises:
            Refused: The client is too far behind a turn that keeps no events (`reader_behind`).
        """
        while True:
            self._news.clear()
            while self._waiting:
                event = self._waiting.popleft()
                self._room.set()
                yield event
            if self._behind:
                raise behind(self.turn_id)
            if self._task.done() and not self._waiting:
                return
            if not self._waiting:
                await self._news.wait()

    def outcome(self) -> Turn:
        """Return the turn, after its last event.

        Raises:
            WorldAgentError, Refused: The error with which it failed.
        """
        if self._task.cancelled():
            return Turn(id=self.turn_id or "", thread="", status="cancelled")  # `turn_record` adds the thread
        return self._task.result()

    def stop(self) -> None:
        """Stop following: the client has disconnected, or has its answer."""
        self._waiting = None
        self._room.set()
        if not self._detach and not self._task.done() and not self._task.cancelling():
            self._task.cancel()

    async def _run(self, workspace: str, start: Callable[[], TurnStream]) -> Turn:
        async with self._agents.use(workspace):
            with await self._counted(workspace):
                stream = start()
                del start  # it holds the call's role
                try:
                    async with stream:
                        self.kept = self._answers  # entering the stream saves them
                        self.turn_id = stream.turn_id
                        async with aclosing(_read(stream)) as events:
                            async for event in events:
                                if stream.recorded:
                                    await self._has_room()
                                self._take(event)
                        return await stream.wait()
                except WorldAgentError as error:
                    error.turn_id = error.turn_id or self.turn_id
                    raise

    async def _counted(self, workspace: str) -> AbstractContextManager[None]:
        """Count the turn. In a full workspace, allow a start that would only repeat an existing turn.

        Raises:
            Refused: The workspace is full.
        """
        keyed = self._keyed
        place: object = object() if keyed is None else keyed.place
        if keyed is not None and not self._agents.has_room(workspace, place) and await keyed.repeats():
            return nullcontext()
        return self._agents.turn(workspace, place)

    async def _has_room(self) -> None:
        while self._waiting is not None and len(self._waiting) >= self._lag:
            self._room.clear()
            await self._room.wait()

    def _take(self, event: Event) -> None:
        if self._waiting is None:
            return
        if len(self._waiting) >= self._lag:
            self._behind, self._waiting = True, None
        else:
            self._waiting.append(event)
        self._news.set()


async def _read(stream: TurnStream) -> AsyncGenerator[Event]:
    async for event in stream:
        yield event


MIN_WAIT_SECONDS = 0.25  # seconds for reading the available events if the client does not want to wait
READ_ALL_SECONDS = 10.0  # seconds for reading all events of a turn that no longer runs
QUIET_SECONDS = 0.02  # seconds without another event, after which the answer is sent


async def events(call: ToolCall[EventsArguments], agent: WorldAgent) -> EventsAnswer:
    """Run `events`."""
    turn_id = call.given.turn_id
    state = await _reached(call, agent)
    call.facts.thread, call.facts.turn = state.thread, turn_id
    reading = _Reading(call)
    found = agent.events(turn_id, after=call.given.after)
    if call.wants_progress:
        await reading.send(found)
    else:
        # The events of a turn that no longer runs have an end, so this reads all of them.
        over = state.status != "running"
        await reading.collect(
            found, seconds=READ_ALL_SECONDS if over else max(call.given.wait, MIN_WAIT_SECONDS), to_end=over
        )
    state = await _reached(call, agent)
    pauses: tuple[Pause, ...] = ()
    if state.status == "paused":
        thread = agent.thread(state.thread, account=call.caller.account, channel=state.channel)
        pauses = unanswered(await thread.pauses())
    record = reading.record(state, pauses)
    ids = call.ids | {"thread": state.thread} | ({} if state.channel is None else {"channel": state.channel})
    shown_status = state.status if reading.ended else "running"  # the client must read more events first
    call.note_turn(state)
    made = to_call(call, shown_status, turn_id, pauses, seq=reading.seq, ids=ids)
    if shown_status != state.status:
        made = [made[0].model_copy(update={"why": "there are more of its events"})]
    return EventsAnswer(
        turn=record,
        seq=reading.seq,
        next=made,
        events=[json.loads(event.model_dump_json()) for event in reading.events],
    )


async def _reached(call: ToolCall[EventsArguments], agent: WorldAgent) -> ThreadState:
    """Return the state of the turn.

    Raises:
        UnknownTurn: The turn does not exist, or the token does not reach it. The error does not reveal which.
    """
    state = await agent.turn(call.given.turn_id)
    if state is not None and call.reach.allows_thread(state.thread):
        return state
    raise UnknownTurn(
        "the token reaches no turn of the workspace with this id", remedy="give the id that the turn's answer had"
    )


class _Reading:
    """The events of a turn that one call reads."""

    def __init__(self, call: ToolCall[EventsArguments]) -> None:
        self._call = call
        self._started: TurnStarted | None = None
        self._over: TurnEnded | None = None
        self._come = asyncio.Event()
        self.events: list[Event] = []
        self.seq = call.given.after
        self.ended = False

    async def send(self, found: AsyncIterator[Event]) -> None:
        """Send events as progress until the turn or the sidecar ends."""
        progress = Progress(self._call)

        async def read() -> None:
            async for event in found:
                await progress.send(event)
                self._take(event)
            self.ended = True

        async with progress.heartbeats():
            await self._while_serving(read())

    async def collect(self, found: AsyncIterator[Event], *, seconds: float, to_end: bool) -> None:
        """Collect the available events. Wait up to `seconds` for the first one, or with `to_end` for the last one."""
        given = self._call.given

        async def read() -> None:
            async for event in found:
                self._take(event)
                self.events.append(event)
                self._come.set()
                if len(self.events) == given.limit:
                    return
            self.ended = True

        await self._while_serving(read(), seconds=seconds, to_end=to_end)

    async def _while_serving(
        self, reading: Coroutine[Any, Any, None], *, seconds: float | None = None, to_end: bool = True
    ) -> None:
        """Read until the turn or the sidecar ends, at most for `seconds`; without `to_end` until the first events."""
        parts = self._call.parts
        task = parts.agents.spawn(reading)
        ending, coming = (asyncio.ensure_future(each.wait()) for each in (parts.ending, self._come))
        try:
            waited: set[asyncio.Future[Any]] = {task, ending} if to_end else {task, ending, coming}
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            seen = 0
            while not to_end and seen < len(self.events):
                seen = len(self.events)
                await asyncio.wait({task}, timeout=QUIET_SECONDS)
        finally:
            ending.cancel()
            coming.cancel()
            task.cancel()
        if task.done() and not task.cancelled():
            task.result()

    def _take(self, event: Event) -> None:
        self.seq = event.seq
        if isinstance(event, TurnStarted):
            self._started = event
        elif isinstance(event, TurnEnded):
            self._over = event

    def record(self, state: ThreadState, pauses: tuple[Pause, ...]) -> TurnRecord:
        """Return the turn as far as it is known here. Facts from its events are present only if this call read them."""
        over = self._over if self._over is not None and self._over.status == state.status else None
        typed = over is not None and over.status == "done" and state.kind in ("task", "skill")
        return TurnRecord.model_validate(
            {
                "id": state.turn_id,
                "thread": state.thread,
                "status": state.status,
                "text": None if over is None else over.text,
                "result": json.loads(over.text) if typed and over is not None else None,
                "role_tiers": None if self._started is None else [tier.value for tier in self._started.role_tiers],
                "pauses": [pause_record(pause) for pause in pauses],
            }
        )
