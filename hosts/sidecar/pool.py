"""The agents of the sidecar, one for each workspace, opened when somebody asks for it. What they do is not known here.

One that is in use is never closed. An idle one is closed where another workspace needs its place: the one that was used
longest ago, and none that holds a thread's role as long as there is another.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...agent import WorldAgent
from ...core.errors import InvalidArgument
from .ports import Refused

_log = logging.getLogger("worldagent.sidecar")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the sidecar does at once, and how long it waits for a slow reader.

    Attributes:
        turns: Turns under way in one workspace.
        workspaces: Agents that are open.
        reader_lag: Events that wait in memory for a client. Those of a turn that keeps its events wait in the database.
        reader_stall: Seconds that a client may take to read one event.
        heartbeat: Seconds without an event after which a client that wants progress is sent a heartbeat.

    Raises:
        InvalidArgument: One is not above 0.
    """

    turns: int = 1000
    workspaces: int = 64
    reader_lag: int = 10_000
    reader_stall: float = 30.0
    heartbeat: float = 15.0

    def __post_init__(self) -> None:
        for name in ("turns", "workspaces", "reader_lag", "reader_stall", "heartbeat"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name} {value!r} is no limit", remedy="give a number above 0")


@dataclass(slots=True, eq=False, kw_only=True)
class _Place:
    """An agent that is open, or opening, or closing."""

    workspace: str
    opening: asyncio.Task[WorldAgent]
    users: int = 0
    turns: Counter[object] = field(default_factory=Counter)  # by what is one turn, how many calls follow it
    used: float = field(default_factory=time.monotonic)
    roles_until: float = 0.0
    closing: asyncio.Task[None] | None = None


class Agents:
    """Opens, keeps and closes the agents.

    Args:
        make: Makes the agent of a workspace; it is not open yet. It may give the same one again after that was closed.
        limits: How many agents, and how many turns of each.
    """

    def __init__(self, make: Callable[[str], WorldAgent], limits: Limits) -> None:
        self._make = make
        self._limits = limits
        self._places: dict[str, _Place] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.draining = False

    @property
    def open(self) -> int:
        """How many agents there are."""
        return len(self._places)

    def opened(self) -> tuple[WorldAgent, ...]:
        """The agents that are open now, to be looked at; who works with one takes it by `use`."""
        ready = [place.opening for place in self._places.values() if place.closing is None and place.opening.done()]
        return tuple(task.result() for task in ready if not task.cancelled() and task.exception() is None)

    @property
    def turns(self) -> int:
        """How many turns are under way."""
        return sum(len(place.turns) for place in self._places.values())

    @asynccontextmanager
    async def use(self, workspace: str) -> AsyncGenerator[WorldAgent]:
        """The agent of a workspace, which stays open meanwhile.

        Raises:
            Refused: The sidecar is ending, or all places are in use.
            WorldAgentError: The agent cannot be made or opened. The next call tries again.
        """
        place = await self._place(workspace)
        place.users += 1
        try:
            yield await self._opened(place)
        finally:
            place.users -= 1
            place.used = time.monotonic()

    def has_room(self, workspace: str, turn: object) -> bool:
        """Whether a turn may be under way; one that is followed already may be followed by any number of calls."""
        turns = self._places[workspace].turns
        return turn in turns or len(turns) < self._limits.turns

    @contextmanager
    def turn(self, workspace: str, turn: object) -> Generator[None]:
        """Count a turn; the agent is in use.

        Args:
            workspace: Whose turn it is.
            turn: Stands for it: calls that give what is equal follow one turn.

        Raises:
            Refused: The workspace has as many as it may.
        """
        place = self._places[workspace]
        if not self.has_room(workspace, turn):
            raise Refused(
                "too_many_turns",
                f"the workspace has {self._limits.turns} turns under way",
                remedy="wait until some have ended, and call again",
            )
        place.turns[turn] += 1
        try:
            yield
        finally:
            place.turns[turn] -= 1
            if not place.turns[turn]:
                del place.turns[turn]

    def hold_role(self, workspace: str, seconds: float) -> None:
        """Note that the agent has a role in memory for so long, which closing it would lose."""
        place = self._places[workspace]
        place.roles_until = max(place.roles_until, time.monotonic() + seconds)

    def spawn(self, work: Coroutine[Any, Any, T], *, context: Context | None = None) -> asyncio.Task[T]:
        """Run something that outlives the request it came with, out of reach of that one's cancellation.

        Args:
            work: What to run. Its error is for whoever waits for it, if anybody does.
            context: Another context than the request's.
        """
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def refusal(self) -> Refused:
        """What a call gets that comes too late."""
        return Refused("draining", "the sidecar is ending", remedy="call again, at the one that follows it")

    async def drain(self, seconds: float) -> None:
        """Take no new call; stop the turns at their next step, and close the agents.

        Args:
            seconds: How long to wait for that; what is not there by then is cut off.
        """
        self.draining = True
        await asyncio.gather(*(self._drained(place, seconds) for place in list(self._places.values())))
        # Turns whose agents are closed end by themselves; they were told.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    async def _place(self, workspace: str) -> _Place:
        while True:
            if self.draining:
                raise self.refusal()
            place = self._places.get(workspace)
            if place is None:
                place = self._new_place(workspace)
                if place is not None:
                    return place
            elif place.closing is None:
                return place
            await self._room(workspace)

    def _new_place(self, workspace: str) -> _Place | None:
        if len(self._places) >= self._limits.workspaces:
            return None
        # Not in the context of the request that happens to be the first: what the agent runs is for all.
        opening = self.spawn(self._open(workspace), context=Context())
        place = self._places[workspace] = _Place(workspace=workspace, opening=opening)
        opening.add_done_callback(partial(self._gone, place))
        return place

    async def _room(self, workspace: str) -> None:
        """Wait until a place is free, this workspace's own or any."""
        closing = [place.closing for place in self._places.values() if place.closing is not None]
        own = self._places.get(workspace)
        if own is not None and own.closing is not None:
            closing = [own.closing]
        if not closing:
            idle = [place for place in self._places.values() if not place.users]
            if not idle:
                raise Refused(
                    "too_many_turns",
                    f"all {self._limits.workspaces} agents of the sidecar are in use",
                    remedy="wait until one is idle, and call again",
                )
            now = time.monotonic()
            oldest = min(idle, key=lambda place: (place.roles_until > now, place.used))
            oldest.closing = self.spawn(self._close(oldest), context=Context())
            closing = [oldest.closing]
        await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)

    async def _open(self, workspace: str) -> WorldAgent:
        return await self._make(workspace).start()

    async def _opened(self, place: _Place) -> WorldAgent:
        await asyncio.wait({place.opening})  # whoever waits may be cancelled, and another one wait on
        if place.opening.cancelled():
            raise self.refusal()
        return place.opening.result()

    def _gone(self, place: _Place, opening: asyncio.Task[WorldAgent]) -> None:
        """Forget an agent that could not be opened, so that the next call tries again."""
        if (opening.cancelled() or opening.exception() is not None) and self._places.get(place.workspace) is place:
            del self._places[place.workspace]

    async def _close(self, place: _Place) -> None:
        await asyncio.wait({place.opening})
        try:
            if not place.opening.cancelled() and place.opening.exception() is None:
                await place.opening.result().aclose()
        except Exception as error:  # not by name: an agent's parts are others'; no other workspace fails for it
            _log.error("an idle agent could not be closed: %s", type(error).__name__)
        finally:
            if self._places.get(place.workspace) is place:
                del self._places[place.workspace]

    async def _drained(self, place: _Place, seconds: float) -> None:
        if place.closing is not None:
            await asyncio.wait({place.closing}, timeout=seconds)
            return
        if not place.opening.done():
            await asyncio.wait({place.opening}, timeout=seconds)
            place.opening.cancel()
        try:
            if place.opening.done() and not place.opening.cancelled() and place.opening.exception() is None:
                await place.opening.result().drain(seconds)
        except Exception as error:  # not by name, as above: the others are to be drained all the same
            _log.error("an agent could not be drained: %s", type(error).__name__)
        finally:
            self._places.pop(place.workspace, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is for whoever waits; where nobody does, the loop need not complain


__all__ = ["Agents", "Limits"]
