"""One turn as one call follows it: it runs in a task of its own, and its events wait in a bounded buffer.

A call that is cancelled leaves; whether the turn then goes on is said when it begins. What is made of the events is not
known here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from ....agent import Turn, TurnStream
from ....core.errors import WorldAgentError
from ....core.events import Event
from .._pool import Agents
from .._ports import Refused

Start = Callable[[], Awaitable[TurnStream]]


class Following:
    """A turn that a call follows.

    Args:
        agents: Counts the turn, and owns the task that runs it.
        workspace: Whose turn it is.
        start: Begins the turn or goes on with one. It holds the call's role, and is let go of once that has begun.
        lag: How many events may wait for the client.
        detach: Whether the turn goes on when the call leaves.
    """

    def __init__(self, agents: Agents, workspace: str, start: Start, *, lag: int, detach: bool) -> None:
        self._agents = agents
        self._lag = lag
        self._detach = detach
        self._waiting: deque[Event] | None = deque()
        self._news = asyncio.Event()
        self._behind = False
        self.turn_id: str | None = None
        self._task = agents.spawn(self._run(workspace, start))
        self._task.add_done_callback(lambda _: self._news.set())

    async def events(self) -> AsyncGenerator[Event]:
        """The events, up to the end of this run of the turn.

        Raises:
            Refused: The client is too far behind (`reader_behind`).
        """
        while True:
            self._news.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._behind:
                raise behind(self.turn_id)
            if self._task.done() and not self._waiting:
                return
            if not self._waiting:
                await self._news.wait()

    def outcome(self) -> Turn:
        """The turn, after its last event.

        Raises:
            WorldAgentError, Refused: What it failed with.
        """
        if self._task.cancelled():
            return Turn(id=self.turn_id or "", status="cancelled")
        return self._task.result()

    def leave(self) -> None:
        """Follow no longer: the client is gone, or has its answer."""
        self._waiting = None
        if not self._detach and not self._task.done() and not self._task.cancelling():
            self._task.cancel()

    async def _run(self, workspace: str, start: Start) -> Turn:
        async with self._agents.use(workspace):
            with self._agents.turn(workspace):
                beginning, start = start(), _nothing
                stream = await beginning
                del beginning
                try:
                    async with stream:
                        self.turn_id = stream.turn_id
                        async with aclosing(_read(stream)) as events:
                            async for event in events:
                                self._take(event)
                        return await stream.wait()
                except WorldAgentError as error:
                    error.turn_id = error.turn_id or self.turn_id
                    raise

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


async def _nothing() -> Any:
    raise AssertionError("a turn is begun once")


def behind(turn_id: str | None) -> Refused:
    """The refusal of a client that reads too slowly."""
    return Refused(
        "reader_behind",
        "the client reads slower than the turn goes on",
        remedy="read on with events, after the last number that came, where the turn was begun with detach or a key",
        turn_id=turn_id,
    )


__all__ = ["Following", "Start", "behind"]
