"""A connection that survives restarts of its host. It holds one link at a time; the call after a loss makes a new one.

`link` is one life of the connection and speaks MCP, with the calls to a role host. `tools.link` has those to an MCP
server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..core import Clock
from ..core.errors import HostError, WorldAgentError
from .hosts import Failure, Failures

if TYPE_CHECKING:
    from .link import Link

T = TypeVar("T")
L = TypeVar("L", bound="Link")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Connection(Generic[L]):
    """The connection to one host. It belongs to the event loop of its first call until it or the loop is closed.

    The first call connects. A call after a loss reconnects at once. If that fails too, the next attempt comes at least
    0.1 s after the failure and the one after it at least 0.2 s; the delay doubles each time, up to 2 s. Each call makes
    one attempt, calls that wait share it, and no attempt is made without a call. A call that was running when the
    connection broke is not repeated, because it is unknown what the host did with it.

    Args:
        make: Makes a link that connects after the given number of seconds. It loads the MCP library.
        failures: Makes the failures of the host.
        clock: Waits between attempts.
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
        """Connect if needed, and return the link.

        Raises:
            HostError: The host cannot be reached or used.
            UsageError: The connection is closed, or belongs to another loop.
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
        """Make one call. Cancelling it also cancels the call in the host.

        Args:
            ask: Makes the call over a link.
            seconds: How long the call can take.

        Raises:
            HostError: The host cannot be reached or used, or did not answer within the time limit.
            UsageError: The host refused the request, or the connection is closed or belongs to another loop.
        """
        outcome: T | Failure = self._failures.gone()
        for _ in range(2):
            link = await self.connect()
            outcome = await link.call(partial(ask, link), seconds)
            # If the link was lost unnoticed, or the host forgot the session, the caller gets no error.
            if not (isinstance(outcome, Failure) and outcome.repeatable):
                break
        if isinstance(outcome, Failure):
            raise _unsent(outcome) if outcome.repeatable or outcome.unsent else outcome.error()
        return outcome

    async def aclose(self) -> None:
        """End the connection, from any task.

        Running calls fail, and a child process is stopped. A second call does nothing.

        Raises:
            UsageError: The connection belongs to another loop.
        """
        self._claim()
        self._closed = True
        if self.link is not None:
            self.link.stop()
        if self._ending:
            # Not gathered: a caller that stops waiting must not stop the closing itself.
            await asyncio.wait(set(self._ending))

    def _claim(self) -> None:
        """Bind the connection to the running loop, unless another loop has it: awaiting its objects would never end."""
        loop = asyncio.get_running_loop()
        with self._claiming:
            if self._loop is loop:
                return
            if self._loop is not None and not self._loop.is_closed() and (self._ending or not self._closed):
                raise self._failures.in_another_loop().error()
            # What a closed loop left behind ended with it.
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
    """The error of a call for which the host has certainly done nothing."""
    error = failure.error()
    if isinstance(error, HostError):
        error.unsent = ""
    return error
