"""The calls under way over one link: each has a caller that waits, a task that asks, and a time limit.

The limit is the caller's: a task whose call was given up still has to tell the host, and a host that takes nothing
would hold it for seconds more. So callers await futures, and nobody but the end of the link waits for the tasks.
What is asked and what an answer means are `_link`'s matter.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from .. import _failures as failures
from .._failures import Failure
from .._hosts import Host
from .._request import Request

T = TypeVar("T")

IN_FLIGHT: Final = 32
"""Calls that a host gets at once; the others wait."""
WAITING: Final = 256
"""Calls that may be under way or wait; one more is refused."""


class Ask(Protocol):
    """Makes one call in the host."""

    def __call__(self, request: Request[T], /) -> Coroutine[Any, Any, T | Failure]: ...


class Calls:
    """The calls of one link.

    Args:
        host: The host, which says how long a call may take.
        ask: What makes a call in it.
        late: Gives what a caller is told when time is up; it gets the time of the loop when the call was made, and the
            seconds that it had.
        context: What the tasks run in, each in a copy.
    """

    def __init__(
        self, host: Host, *, ask: Ask, late: Callable[[float, float], Failure], context: contextvars.Context
    ) -> None:
        self._host = host
        self._ask = ask
        self._late = late
        self._context = context
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcomes: set[asyncio.Future[Any]] = set()

    async def make(self, group: asyncio.TaskGroup, request: Request[T], seconds: float | None = None) -> T | Failure:
        """Make one call, by a task of `group`. Cancelling it cancels it in the host.

        Args:
            group: Whose task makes it.
            request: What is asked.
            seconds: How long it may take; None is as long as the host says.
        """
        if len(self._tasks) >= WAITING:
            return failures.crowded(self._host.label, len(self._tasks))
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T | Failure] = loop.create_future()
        task = group.create_task(self._run(request, outcome), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._outcomes.add(outcome)
        seconds = self._host.timeout if seconds is None else seconds
        limit = loop.call_later(seconds, self._give_up, outcome, loop.time(), seconds)
        try:
            return await outcome
        finally:
            self._outcomes.discard(outcome)
            limit.cancel()
            task.cancel()

    def settle(self, why: Failure) -> None:
        """Tell all callers that still wait."""
        for outcome in self._outcomes:
            if not outcome.done():
                outcome.set_result(why)

    def cancel(self) -> None:
        """Cancel all tasks, also those that are busy with telling the host that they were cancelled."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, request: Request[T], outcome: asyncio.Future[T | Failure]) -> None:
        async with self._slots:
            result = await self._ask(request)
        if not outcome.done():
            outcome.set_result(result)

    def _give_up(self, outcome: asyncio.Future[Any], began: float, seconds: float) -> None:
        if not outcome.done():
            outcome.set_result(self._late(began, seconds))
