"""Time as a protocol, so that tests of code that waits need not wait."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


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
