"""A connection that outlives its host's restarts: one link at a time, the next one made by the call that needs it.

`link` is one life of it and speaks MCP; what is sent to a role host is in `role_link`, to an MCP server in
`tools.link`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..core import Clock
from ..core.errors import HostError, WorldAgentError
from .failures import Failure, Failures

if TYPE_CHECKING:
    from .link import Link

T = TypeVar("T")
L = TypeVar("L", bound="Link")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Connection(Generic[L]):
    """The connection to one host. It belongs to the event loop of its first call, until it or the loop is closed.

    The first call connects. A call after a loss connects anew, at once; where that fails too, the next attempt comes
    0.1 s after the failure at the earliest, the one after it 0.2 s, doubled each time, 2 s at most. There is one
    attempt for each call, however many wait for it, and none without a call. A call that was under way when the
    connection broke is not repeated: it is not known what the host made of it.

    Args:
        make: Makes a link that connects after so many seconds. It is what loads the MCP library.
        failures: Makes the host's failures.
        clock: What waits between attempts.
    """

    def __init__(self, make: Callable[[float], L], failures: Failures, *, clock: Clock) -> None:
        self.link: L | None = None
        self._make = make
        self._failures = failures
        self._clock = clock
        self._ending: set[asyncio.Task[None]] = set()
        self._failed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._claiming = threading.Lock()
        self._closed = False

    async def connect(self) -> L:
        """Connect, if it is not connected; give the link.

        Raises:
            HostError: The host cannot be reached or used.
            UsageError: The connection is closed, or another loop's.
        """
        self._claim()
        if self._closed:
            raise self._failures.closed().error()
        link = self.link
        if link is None or link.over:
            link = self.link = self._next(link)
        failure = await link.ready()
        if failure is not None:
            raise _unsent(failure)
        return link

    async def call(self, ask: Callable[[L], Awaitable[T | Failure]], seconds: float) -> T:
        """Make one call; cancelling it cancels it in the host.

        Args:
            ask: Makes it over a link.
            seconds: How long it may take.

        Raises:
            HostError: The host cannot be reached or used, or did not answer in time.
            UsageError: The host refused what was sent, or the connection is closed or another loop's.
        """
        outcome: T | Failure = self._failures.gone()
        for _ in range(2):
            link = await self.connect()
            outcome = await link.call(partial(ask, link), seconds)
            # A link that was lost unnoticed, or a session that the host forgot, costs the caller no error.
            if not (isinstance(outcome, Failure) and outcome.repeatable):
                break
        if isinstance(outcome, Failure):
            raise _unsent(outcome) if outcome.repeatable else outcome.error()
        return outcome

    async def aclose(self) -> None:
        """End it, from any task: calls under way fail, a child process is gone. A second time does nothing.

        Raises:
            UsageError: It belongs to another loop.
        """
        self._claim()
        self._closed = True
        if self.link is not None:
            self.link.stop()
        if self._ending:
            # Not gathered: a caller that stops waiting for the end does not stop the end.
            await asyncio.wait(set(self._ending))

    def _claim(self) -> None:
        """Make it the running loop's, unless another one has it: awaiting what is bound to that one would never end."""
        loop = asyncio.get_running_loop()
        with self._claiming:
            if self._loop is loop:
                return
            if self._loop is not None and not self._loop.is_closed() and (self._ending or not self._closed):
                raise self._failures.in_another_loop().error()
            # What an ended loop left is gone with it.
            self._loop, self.link, self._closed = loop, None, False
            self._ending.clear()

    def _next(self, last: L | None) -> L:
        pause = 0.0
        if last is not None:
            self._failed = 0 if last.answered else self._failed + 1
            if self._failed and last.over_since is not None:
                passed = self._clock.monotonic() - last.over_since
                pause = max(0.0, min(_FIRST_PAUSE * 2 ** (self._failed - 1), _LONGEST_PAUSE) - passed)
        link = self._make(pause)
        self._ending.add(link.task)
        link.task.add_done_callback(self._ending.discard)
        return link


def _unsent(failure: Failure) -> WorldAgentError:
    """The error of a call for which the host has surely done nothing."""
    error = failure.error()
    if isinstance(error, HostError):
        error.unsent = ""
    return error


__all__ = ["Connection"]
