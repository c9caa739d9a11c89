"""The tool `events` attaches to a turn again. It reads the event log with a cursor, so slow clients need no buffer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from ....agent import WorldAgent
from ....agent.threads import ThreadState
from ....core.errors import UnknownTurn
from ....core.events import Event, TurnEnded, TurnStarted
from ....core.pauses import Pause
from ...pauses import unanswered
from ..contract.answers import EventsAnswer, TurnRecord
from ..contract.tools import EventsArguments
from ..pauses import pause_result
from .answering import to_call
from .call import Call
from .following import Progress

MIN_WAIT_SECONDS = 0.25  # seconds for reading the available events if the client does not want to wait
READ_ALL_SECONDS = 10.0  # seconds for reading all events of a turn that no longer runs
QUIET_SECONDS = 0.02  # seconds without another event, after which the answer is sent


async def events(call: Call[EventsArguments], agent: WorldAgent) -> EventsAnswer:
    """Run `events`."""
    turn_id = call.given.turn_id
    state = await _reached(call, agent)
    call.noted.thread, call.noted.turn = state.thread, turn_id
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


async def _reached(call: Call[EventsArguments], agent: WorldAgent) -> ThreadState:
    """Return the state of the turn.

    Raises:
        UnknownTurn: The turn does not exist, or the token does not reach it. The error does not reveal which.
    """
    state = await agent.turn(call.given.turn_id)
    if state is not None and call.grant.allows_thread(state.thread):
        return state
    raise UnknownTurn(
        "the token reaches no turn of the workspace with this id", remedy="give the id that the turn's answer had"
    )


class _Reading:
    """The events of a turn that one call reads."""

    def __init__(self, call: Call[EventsArguments]) -> None:
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
        house = self._call.house
        task = house.agents.spawn(reading)
        ending, coming = (asyncio.ensure_future(each.wait()) for each in (house.ending, self._come))
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
                "pauses": [pause_result(pause) for pause in pauses],
            }
        )


__all__ = ["events"]
