"""A connection that outlives its host's restarts: one link at a time, the next one made by the call that needs it.

`_link` is one life of it and the only one that speaks MCP; which roles are asked for is `_store`'s matter.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..core import Clock, Tier
from ..core.errors import HostError, WorldAgentError
from . import _failures as failures
from ._contract import Operation
from ._failures import Failure
from ._hosts import Host
from ._request import Request

if TYPE_CHECKING:
    from ._link import Link, RoleLink

T = TypeVar("T")
L = TypeVar("L", bound="Link")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Connection(ABC, Generic[L]):
    """The connection to one host. It belongs to the event loop of its first call, until it or the loop is closed.

    The first call connects. A call after a loss connects anew, at once; where that fails too, the next attempt comes
    0.1 s after the failure at the earliest, the one after it 0.2 s, doubled each time, 2 s at most. There is one
    attempt for each call, however many wait for it, and none without a call. A call that was under way when the
    connection broke is not repeated: nobody knows what the host made of it.

    Args:
        host: The host.
        clock: What waits between attempts.
    """

    def __init__(self, host: Host, *, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._link: L | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._failed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._claiming = threading.Lock()
        self._closed = False

    @abstractmethod
    def _make(self, pause: float) -> L:
        """A new link, which connects after `pause` seconds."""

    def _error(self, failure: Failure) -> WorldAgentError:
        """The error that a caller gets."""
        return failure.error()

    async def _call(self, request: Request[T], seconds: float | None = None) -> T:
        """Make one call; cancelling it cancels it in the host.

        Args:
            request: What is asked.
            seconds: How long it may take; None is as long as the host says.

        Raises:
            HostError: The host cannot be reached or used, or did not answer in time.
            UsageError: The host refused what was sent, or the connection is closed or another loop's.
        """
        outcome: T | Failure = failures.gone(self._host)
        for _ in range(2):
            link = await self._linked()
            outcome = await link.call(request, seconds)
            # A link that was lost unnoticed, or a session that the host forgot, costs the caller no error.
            if not (isinstance(outcome, Failure) and outcome.repeatable):
                break
        if isinstance(outcome, Failure):
            raise self._unsent(outcome) if outcome.repeatable else self._error(outcome)
        return outcome

    async def aclose(self) -> None:
        """End it, from any task: calls under way fail, a child process is gone. A second time does nothing.

        Raises:
            UsageError: It belongs to another loop.
        """
        self._claim()
        self._closed = True
        if self._link is not None:
            self._link.stop()
        if self._ending:
            # Not gathered: who stops waiting for the end does not stop the end.
            await asyncio.wait(set(self._ending))

    async def _linked(self) -> L:
        self._claim()
        if self._closed:
            raise self._error(failures.closed(self._host.label))
        link = self._link
        if link is None or link.over:
            link = self._link = self._next(link)
        failure = await link.ready()
        if failure is not None:
            raise self._unsent(failure)
        return link

    def _unsent(self, failure: Failure) -> WorldAgentError:
        """The error of a call for which the host has surely done nothing."""
        error = self._error(failure)
        if isinstance(error, HostError):
            error.unsent = ""
        return error

    def _claim(self) -> None:
        """Make it the running loop's, unless another one has it: awaiting what is bound to that one would never end."""
        loop = asyncio.get_running_loop()
        with self._claiming:
            if self._loop is loop:
                return
            if self._loop is not None and not self._loop.is_closed() and (self._ending or not self._closed):
                raise self._error(failures.elsewhere(self._host.label))
            # What an ended loop left is gone with it.
            self._loop, self._link, self._closed = loop, None, False
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


class HostConnection(Connection["RoleLink"]):
    """The connection to one role host.

    Args:
        host: The host.
        clock: What waits between attempts.
        on_change: Told of the tier and scope of a role that changed in the host.
    """

    def __init__(self, host: Host, *, clock: Clock, on_change: Callable[[Tier, str], None]) -> None:
        super().__init__(host, clock=clock)
        self._on_change = on_change

    async def connect(self) -> frozenset[Tier]:
        """Connect, if it is not connected; give the tiers that the host keeps.

        Raises:
            HostError: The host cannot be reached or used.
            UsageError: The connection is closed, or another loop's.
        """
        link = await self._linked()
        return link.tiers

    async def call(self, operation: Operation[T]) -> T:
        """Make one call; see `_call`."""
        return await self._call(operation)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask to be told of changes in these scopes, where the host can tell."""
        if self._link is not None:
            self._link.watch(scope_ids)

    def _make(self, pause: float) -> RoleLink:
        # Here, because the MCP library is loaded only where a host is used.
        from ._link import RoleLink

        return RoleLink(self._host, delay=pause, clock=self._clock, on_change=self._on_change)


__all__ = ["Connection", "HostConnection"]
