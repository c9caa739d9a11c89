"""A clock that a test advances. It implements `core.Clock`; asyncio's own timeouts do not use it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from ..core.errors import InvalidArgument

# Rounds of the event loop that woken code gets to run, and to sleep again, before the clock advances further.
_SETTLE_ROUNDS = 20
_DEFAULT_START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A clock whose time changes only in `advance`. Use it in one event loop."""

    def __init__(self, start: datetime = _DEFAULT_START) -> None:
        """Create a clock that shows `start`, an aware time; `monotonic` begins at 0.

        Raises:
            InvalidArgument: `start` has no time zone.
        """
        if start.tzinfo is None:
            raise InvalidArgument(f"`start` must have a time zone, got {start!r}", remedy="pass an aware datetime")
        self._start = start.astimezone(UTC)
        self._passed = 0.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> datetime:
        """Return the time of day, aware, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return self._passed

    @property
    def sleepers(self) -> int:
        """The number of calls of `sleep` that are waiting."""
        return sum(not future.done() for _, _, future in self._waiting)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has advanced by `seconds`; for 0 or less return after one switch of tasks."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._passed + seconds, next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds`, waking each sleeper at its time, in order, and letting it run before the next.

        Raises:
            InvalidArgument: `seconds` is negative.
        """
        if seconds < 0:
            raise InvalidArgument(f"`seconds` must not be negative, got {seconds!r}", remedy="pass 0 or more")
        end = self._passed + seconds
        await _settle()
        while self._waiting and self._waiting[0][0] <= end:
            due, _, future = heapq.heappop(self._waiting)
            self._passed = max(self._passed, due)
            if not future.done():
                future.set_result(None)
                await _settle()
        self._passed = end


async def _settle() -> None:
    for _ in range(_SETTLE_ROUNDS):
        await asyncio.sleep(0)
