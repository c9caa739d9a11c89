"""One turn as a stream of events. All other ways to run a turn read such a stream to its end (T4, T10).

`RunningTurn.next` decides where the events come from: a queue of the stream's own or, for a recorded turn, the follower
that all its readers use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from ..core.errors import AgentClosed
from ..core.events import Event
from .choices import read_output
from .turns import Turn


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that a stream has entered.

    Attributes:
        turn_id: The turn's id.
        thread: The id of the thread that it was begun on.
        task: Ends when the turn ends.
        next: Returns the next event; None after the last one.
        end: Cancels the turn, wherever it runs; returns False if there is nothing to cancel.
        behind: Returns how many events have not been taken yet.
        recorded: Whether the turn's events are stored.
        leave: Removes this stream; returns whether to cancel the turn, unless it is detached.
    """

    turn_id: str
    thread: str
    task: asyncio.Task[Turn]
    next: Callable[[], Awaitable[Event | None]]
    end: Callable[[], Awaitable[bool]]
    behind: Callable[[], int]
    recorded: bool
    leave: Callable[[], bool] = lambda: True


Enter = Callable[[], Coroutine[Any, Any, RunningTurn]]


class TurnStream:
    """An async context manager and iterator over the events of one turn.

    The turn starts on entering the `async with`. Leaving it cancels the turn, unless the turn has ended, `detach` is
    set, or another stream holds it by its key; a detached turn continues until the agent closes. Iterating raises the
    turn's error after its last event.

    Args:
        turn_id: The turn's id. It is empty until the stream is entered if the turn is resumed or replayed. With a key
            it can change when the stream is entered, to the id of the turn that has this key.
        enter: Starts the turn.
        detach: Whether the turn continues after the block is left.
        output: Reads the turn's result, if that is not a shape's.
    """

    def __init__(
        self, turn_id: str, enter: Enter, *, detach: bool = False, output: TypeAdapter[Any] | None = None
    ) -> None:
        self._output = output
        self.turn_id = turn_id
        self._enter: Enter | None = enter
        self._detach = detach
        self._running: RunningTurn | None = None
        self._ended = False
        self._raised = False

    @property
    def turn(self) -> Turn:
        """The turn, after its end.

        Raises:
            AgentClosed: The stream was not entered, or the turn has not ended.
            WorldAgentError: The error that the turn failed with.
        """
        if self._running is None or not self._running.task.done():
            raise AgentClosed("the turn has not ended", remedy="iterate over the stream to its end first")
        self._raised = True
        return self._outcome(self._running.task)

    @property
    def behind(self) -> int:
        """The number of events that have not been taken from the stream yet."""
        return 0 if self._running is None else self._running.behind()

    @property
    def recorded(self) -> bool:
        """Whether the turn's events are stored (`ThreadState.recorded`), so that a slow reader costs no memory.

        False until the stream is entered.
        """
        return self._running is not None and self._running.recorded

    async def __aenter__(self) -> Self:
        # `enter` holds the call's role, so it is dropped as soon as the turn has the role.
        enter, self._enter = self._enter, None
        if enter is None:
            raise AgentClosed("a stream can be entered once", remedy="start another turn")
        entering = enter()
        del enter
        self._running = await entering
        self.turn_id = self._running.turn_id
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is None:
            return
        task = self._running.task
        if self._running.leave() and not task.done() and not self._detach:
            cancel_once(task)
            await asyncio.wait({task})
        if task.done() and not task.cancelled() and task.exception() is not None and error is None and not self._raised:
            self._raised = True
            task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        held = self._entered()
        event = None if self._ended else await held.next()
        if event is None:
            self._ended = True
            await asyncio.wait({held.task})
            if not self._raised:
                self._raised = True
                self._outcome(held.task)
            raise StopAsyncIteration
        return event

    async def wait(self) -> Turn:
        """Wait for the turn's end without looking at its events.

        Raises:
            AgentClosed: The stream was not entered.
            WorldAgentError: The error that the turn failed with.
        """
        await asyncio.wait({self._entered().task})
        return self.turn

    async def cancel(self) -> bool:
        """Cancel the turn, even if the stream is detached, and wait for its end; see `thread.cancel()`.

        Returns:
            False if there was nothing to cancel.

        Raises:
            AgentClosed: The stream was not entered.
        """
        held = self._entered()
        cancelled = await held.end()
        await asyncio.wait({held.task})
        return cancelled

    def _entered(self) -> RunningTurn:
        if self._running is None:
            raise AgentClosed("the stream was not entered", remedy="use 'async with thread.stream(...) as stream:'")
        return self._running

    def _outcome(self, task: asyncio.Task[Turn]) -> Turn:
        if not task.cancelled():
            turn = task.result()
            if self._output is None or turn.result is None:
                return turn
            return replace(turn, result=read_output(self._output, turn.result))
        return Turn(id=self.turn_id, thread=self._entered().thread, status="cancelled")


def cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancel a task unless it is being cancelled already: a second cancellation would interrupt its clean-up."""
    if not task.cancelling():
        task.cancel()
