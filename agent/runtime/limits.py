"""Bounds and interruptions of turns: a drain, a start with the same key elsewhere, a time limit, a start queue.

`runner` knows which turns are running; `run` records an interrupted one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from ...core import Clock
from ...core.errors import AgentClosed, TurnTimeout, WorldAgentError

POLL_SECONDS: Final = 0.25  # seconds between two polls
MAX_STARTING_TURNS: Final = 16  # one transaction writes all of them; a higher number costs memory and gains no speed


class KeyBegun(Exception):
    """Another process has begun the turn with this key, or resumes it."""


class Drain:
    """Whether an agent is being drained, and the turns that had not begun when the drain started."""

    def __init__(self) -> None:
        self.begun = False
        self._waiting: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Let no further turn begin; turns that wait to begin are refused at once."""
        self.begun = True
        for refuse in self._waiting:
            refuse()

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Run the block that comes before a turn's first write.

        Raises:
            AgentClosed: The drain has begun, or begins during the block.
        """
        async with interruptible(_closed) as refuse:
            if self.begun:
                raise _closed()
            self._waiting.add(refuse)
            try:
                yield
            finally:
                self._waiting.discard(refuse)


class StartQueue:
    """Limits how many turns begin at the same time; the others wait in line.

    A turn that begins builds a graph, a model call and thousands of objects. When a thousand turns arrive at once, each
    of them would otherwise get that far before the first one reaches its model: that takes memory, and the garbage
    collector goes through all of it again and again. A turn leaves the line before it waits for a model or a function.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_STARTING_TURNS)
        self._beginning: set[str] = set()

    async def enter(self, turn_id: str) -> None:
        """Wait in line until this turn may begin."""
        await self._free.acquire()
        self._beginning.add(turn_id)

    def leave(self, turn_id: str) -> None:
        """Let the next turn begin; does nothing if this one has already left or never entered."""
        if turn_id in self._beginning:
            self._beginning.remove(turn_id)
            self._free.release()


@asynccontextmanager
async def unless_begun(begun: Callable[[], Awaitable[bool]]) -> AsyncGenerator[None]:
    """Wait in this block for the thread of a turn with a key.

    Args:
        begun: Checks whether another process has begun or resumed the turn.

    Raises:
        KeyBegun: Another process has.
    """
    async with interruptible(KeyBegun) as stop:
        looking = asyncio.ensure_future(_look(begun, stop))
        try:
            yield
        finally:
            looking.cancel()


@asynccontextmanager
async def limited(seconds: float | None, clock: Clock) -> AsyncGenerator[None]:
    """Run the block for at most `seconds` of the clock's time; None means no limit.

    Raises:
        TurnTimeout: The block takes longer; it is cancelled and has ended.
    """
    if seconds is None:
        yield
        return

    def too_long() -> TurnTimeout:
        return TurnTimeout(
            f"the turn ran for longer than {seconds:g} s",
            remedy="resume the turn, or raise the setting turn_timeout",
        )

    async with interruptible(too_long) as expire:
        watch = asyncio.ensure_future(clock.sleep(seconds))
        watch.add_done_callback(lambda done: None if done.cancelled() else expire())
        try:
            yield
        finally:
            watch.cancel()


@asynccontextmanager
async def interruptible(error: Callable[[], Exception]) -> AsyncGenerator[Callable[[], None]]:
    """Run a block that can be interrupted: calling the yielded function cancels it and raises `error()` at its end."""
    limit, inside = asyncio.timeout(None), True

    def interrupt() -> None:
        if inside and limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            try:
                yield interrupt
            finally:
                inside = False
        return
    except TimeoutError:
        if not limit.expired():
            raise
    raise error()  # outside the handler, so that the error has no `__context__`


async def _look(begun: Callable[[], Awaitable[bool]], stop: Callable[[], None]) -> None:
    found = False
    while not found:
        await asyncio.sleep(POLL_SECONDS)
        with contextlib.suppress(WorldAgentError):  # the turn itself reports a database that is down
            found = await begun()
    stop()


def _closed() -> AgentClosed:
    return AgentClosed(
        "the agent was closed before the turn could begin; nothing of the turn is written",
        remedy="start it again once the agent is open",
    )
