"""Time as a protocol, so that tests need not wait; values that expire; and waiting for work that is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Hashable
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """The source of time for the package."""

    def now(self) -> datetime:
        """The current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease; only differences between two values have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


def utc_text(at: datetime) -> str:
    """Format a time as RFC 3339 in UTC with `Z`, as events have it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


T = TypeVar("T")


class Expiring(Generic[T]):
    """Values by key, each held for a limited time. If there are too many, the one that was used longest ago goes first.

    Args:
        clock: The source of time.
        most: How many values are held at most.
    """

    def __init__(self, clock: Clock, most: int = 1000) -> None:
        self._clock = clock
        self._most = most
        self._held: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def put(self, key: Hashable, value: T, *, end: float) -> None:
        """Hold a value until `end`, in seconds of the clock's `monotonic`, and drop those that have expired."""
        self._held[key] = (end, value)
        self._held.move_to_end(key)
        now = self._clock.monotonic()
        while self._held and (len(self._held) > self._most or next(iter(self._held.values()))[0] <= now):
            self._held.popitem(last=False)

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if it has none, or it has expired."""
        end, value = self._held.get(key, (0.0, None))
        if value is None or end <= self._clock.monotonic():
            self.drop(key)
            return None
        self._held.move_to_end(key)
        return value

    def drop(self, key: Hashable) -> None:
        """Drop the value of a key, if it has one."""
        self._held.pop(key, None)


# --- waiting ----------------------------------------------------------------------------------------------------------


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Run work that is final once it is done, such as a transaction. A cancelled caller still waits for its end.

    Args:
        work: The work. It runs in a separate task.

    Returns:
        The result of the work, and whether the caller was cancelled while it waited.

    Raises:
        BaseException: The work raised it, whether or not the caller was cancelled. The work has then had no effect.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


def abandoned(task: asyncio.Task[Any] | None) -> bool:
    """Whether the garbage collector is closing the calling coroutine, rather than its task ending it.

    Call it while the coroutine handles its exception. The collector can run in the middle of anything that a thread
    does, such as submitting a job to a thread pool while it holds the pool's locks. So an abandoned coroutine must not
    submit jobs and must not wait. What it has open is released with the last reference to it.

    Args:
        task: The task that the coroutine ran in: the `asyncio.current_task()` it saw earlier.
    """
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs in this thread
        return True
