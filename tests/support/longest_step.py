"""How much is done while nothing else can run in the event loop, in calls of functions, as many on any machine."""

import asyncio
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


async def longest_step(asked: Awaitable[T]) -> tuple[int, T]:
    """Await something; gives the most calls of functions that this thread makes between two steps of another task."""
    calls = most = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    async def tick() -> None:
        nonlocal calls, most
        while True:
            await asyncio.sleep(0)
            most, calls = max(most, calls), 0

    before, ticks = sys.getprofile(), asyncio.create_task(tick())
    sys.setprofile(count)
    try:
        found = await asked
        for _ in range(3):  # until the other task has seen what was done last
            await asyncio.sleep(0)
        return most, found
    finally:
        sys.setprofile(before)
        ticks.cancel()
