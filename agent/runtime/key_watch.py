"""Waiting for a thread with a key: whoever waits looks whether somebody else has the turn under way meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from ...core.errors import WorldAgentError

_LOOK: Final = 0.25  # seconds between two looks


class KeyBegun(Exception):
    """Somebody else has begun the turn meanwhile, or goes on with it."""


@asynccontextmanager
async def unless_begun(begun: Callable[[], Awaitable[bool]]) -> AsyncGenerator[None]:
    """Wait here for the thread of a turn with a key.

    Args:
        begun: Looks whether somebody else has begun the turn, or goes on with it.

    Raises:
        KeyBegun: Somebody has.
    """
    waiting = asyncio.timeout(None)
    looking = asyncio.ensure_future(_look(begun, waiting))
    try:
        async with waiting:
            yield
        return
    except TimeoutError:
        if not waiting.expired():
            raise
    finally:
        looking.cancel()
    raise KeyBegun


async def _look(begun: Callable[[], Awaitable[bool]], waiting: asyncio.Timeout) -> None:
    found = False
    while not found:
        await asyncio.sleep(_LOOK)
        with contextlib.suppress(WorldAgentError):  # a database that is down is told by the turn itself
            found = await begun()
    if not waiting.expired():
        waiting.reschedule(asyncio.get_running_loop().time())


__all__ = ["KeyBegun", "unless_begun"]
