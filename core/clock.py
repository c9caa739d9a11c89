"""Time as a protocol, so that what waits can be tested without waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Where the package takes its time from."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


def utc_text(at: datetime) -> str:
    """A time in UTC as RFC 3339 with `Z`, the form that events have."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
