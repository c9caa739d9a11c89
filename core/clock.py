"""Time as a protocol, so that tests of code that waits need not wait; and waiting for work that is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, runtime_checkable


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


# --- waiting ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")


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
