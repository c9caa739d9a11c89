"""The parts that all calls of a tool share, the progress that they send, and the tool `events`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams

from ...agent import WorldAgent
from ...core import utc_text
from ...core.events import TurnEvent, UnnumberedEvent
from ..service.arguments import EventsArguments, WorkspaceArguments
from ..service.call import Call, Refused
from ..service.following import EventsRead, behind, collect, events_answer, reached_turn
from ..service.pool import Agents, Limits
from ..service.records import EventsAnswer
from .client_roles import ClientRoles

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

    async def send(self, event: TurnEvent) -> None:
        """Send one event, unless the client has it.

        Raises:
            Refused: The client does not read (`reader_behind`).
        """
        if isinstance(event, UnnumberedEvent):
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

    async def _send_message(self, number: float, event: TurnEvent | dict[str, Any]) -> None:
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


# --- the tool `events` ------------------------------------------------------------------------------------------------

MIN_WAIT_SECONDS = 0.25  # seconds for reading the available events if the client does not want to wait
READ_ALL_SECONDS = 10.0  # seconds for reading all events of a turn that no longer runs


async def events(call: ToolCall[EventsArguments], agent: WorldAgent) -> EventsAnswer:
    """Run `events`: attach to a turn again. It reads the log with a cursor, so slow clients need no buffer."""
    turn_id = call.given.turn_id
    state = await reached_turn(call, agent)
    call.facts.thread, call.facts.turn = state.thread, turn_id
    progress, read = Progress(call), EventsRead(call.given.after)
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
    return await events_answer(call, agent, read)


async def _read_events(
    call: ToolCall[EventsArguments], agent: WorldAgent, progress: Progress, read: EventsRead, *, running: bool
) -> None:
    """Send the events as progress up to the end of the run; without progress, collect the available ones.

    Of a running turn, it waits up to `wait` seconds for the first event. The events of a turn that no longer runs have
    an end, so it reads all of them.
    """
    given, events = call.given, agent.events(call.given.turn_id, after=call.given.after)
    if not call.wants_progress:
        seconds = max(given.wait, MIN_WAIT_SECONDS) if running else READ_ALL_SECONDS
        await collect(read, events, limit=given.limit, seconds=seconds, waits=running)
        return
    async for event in events:
        await progress.send(event)
        read.note(event)
    read.ended = True
