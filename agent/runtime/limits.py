"""What ends a run from outside before its time: a drain that finds it waiting, and the time limit of a turn.

`runner` knows which turns are under way; `run` records one that was interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ...core import Clock
from ...core.errors import AgentClosed, TurnTimeout


class Drain:
    """Whether an agent is being drained, and which of its turns have not begun by then."""

    def __init__(self) -> None:
        self.begun = False
        self._waiting: set[asyncio.Timeout] = set()

    def begin(self) -> None:
        """Let no turn begin from now on; those that wait are refused at once."""
        self.begun = True
        for waiting in self._waiting:
            _expire(waiting)

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Do here what comes before a turn's first write.

        Raises:
            AgentClosed: The drain begins meanwhile, or has begun.
        """
        waiting = asyncio.timeout(None)
        if not self.begun:
            try:
                async with waiting:
                    self._waiting.add(waiting)
                    yield
                return
            except TimeoutError:
                if not waiting.expired():
                    raise
            finally:
                self._waiting.discard(waiting)
        raise AgentClosed(
            "the agent was closed before the turn could begin, and nothing of it is written",
            remedy="call it again once the agent is open",
        )


@asynccontextmanager
async def limited(seconds: float | None, clock: Clock) -> AsyncGenerator[None]:
    """Do something within `seconds` of the clock's; None is no limit.

    Raises:
        TurnTimeout: It takes longer; what was under way is cancelled and has ended.
    """
    if seconds is None:
        yield
        return
    limit = asyncio.timeout(None)
    over = False

    def expire(done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            _expire(limit)

    watch = asyncio.ensure_future(clock.sleep(seconds))
    try:
        async with limit:
            watch.add_done_callback(expire)
            try:
                yield
            finally:
                watch.remove_done_callback(expire)
    except TimeoutError:
        if not limit.expired():
            raise
        over = True
    finally:
        watch.cancel()
    if over:
        raise TurnTimeout(
            f"the turn ran for longer than {seconds:g} s",
            remedy="resume the turn to go on, or raise the setting turn_timeout",
        )


def _expire(limit: asyncio.Timeout) -> None:
    if limit.when() is None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())
