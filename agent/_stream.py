"""One turn as a stream of events. It is the primitive: the plain calls drain it (T4, T10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from ..core.errors import AgentClosed
from ..core.events import Event
from ._turns import Turn

Run = Callable[[Callable[[Event], None]], Awaitable[Turn]]
Spawn = Callable[[Awaitable[Turn]], "asyncio.Task[Turn]"]


class TurnStream:
    """An async context manager and iterator over the events of one turn.

    The turn starts on entering the `async with`. Leaving it cancels the turn, unless it has ended or `detach` is set; a
    detached turn goes on until the agent closes. Iterating raises the turn's error after its last event.

    Args:
        turn_id: The turn's id.
        run: Runs the turn and hands each event to its argument.
        spawn: Starts a task that the agent knows of.
        detach: Whether the turn goes on when the block is left.
    """

    def __init__(self, turn_id: str, run: Run, spawn: Spawn, *, detach: bool = False) -> None:
        self.turn_id = turn_id
        self._run: Run | None = run
        self._spawn = spawn
        self._detach = detach
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[Turn] | None = None
        self._ended = False
        self._raised = False

    @property
    def turn(self) -> Turn:
        """The turn, after its end.

        Raises:
            AgentClosed: The stream was not entered, or the turn has not ended.
            WorldAgentError: The turn failed with this.
        """
        if self._task is None or not self._task.done():
            raise AgentClosed("the turn has not ended", remedy="iterate over the stream to its end first")
        self._raised = True
        return self._outcome(self._task)

    async def __aenter__(self) -> Self:
        # What runs the turn holds the call's role, so it is let go as soon as the turn has it.
        run, self._run = self._run, None
        if run is None:
            raise AgentClosed("a stream can be entered once", remedy="start another turn")
        self._task = self._spawn(run(self._events.put_nowait))
        self._task.add_done_callback(lambda task: self._events.put_nowait(None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        if task is None:
            return
        if not task.done() and not self._detach:
            cancel_once(task)
            await asyncio.wait({task})
        if task.done() and not task.cancelled() and task.exception() is not None and error is None and not self._raised:
            self._raised = True
            task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            raise AgentClosed("the stream was not entered", remedy="use 'async with thread.stream(...) as stream:'")
        event = None if self._ended else await self._events.get()
        if event is None:
            self._ended = True
            if not self._raised:
                self._raised = True
                self._outcome(self._task)
            raise StopAsyncIteration
        return event

    async def wait(self) -> Turn:
        """Wait for the turn's end without looking at its events.

        Raises:
            AgentClosed: The stream was not entered.
            WorldAgentError: The turn failed with this.
        """
        if self._task is None:
            raise AgentClosed("the stream was not entered", remedy="use 'async with thread.stream(...) as stream:'")
        await asyncio.wait({self._task})
        return self.turn

    def _outcome(self, task: asyncio.Task[Turn]) -> Turn:
        return Turn(id=self.turn_id, status="cancelled") if task.cancelled() else task.result()


def cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancel a task that nobody has cancelled yet: a second time would cut off what ends the first one well."""
    if not task.cancelling():
        task.cancel()
