"""Waiting for a thread with a key: whoever waits looks whether another process has begun the turn meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ....core.errors import WorldAgentError
from ....memory.events import EventLog, RecordedTurn

_LOOK: Final = 0.25  # seconds between two looks


class KeyBegun(Exception):
    """Another process has begun the turn meanwhile."""


@asynccontextmanager
async def unless_begun(log: EventLog, turn: RecordedTurn) -> AsyncGenerator[None]:
    """Wait here for the thread of a turn with a key.

    Raises:
        KeyBegun: Another process has begun the turn meanwhile.
    """
    if turn.key is None:
        yield
        return
    waiting = asyncio.timeout(None)
    looking = asyncio.ensure_future(_look(log, turn, waiting))
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


async def _look(log: EventLog, turn: RecordedTurn, waiting: asyncio.Timeout) -> None:
    found: RecordedTurn | None = None
    while found is None:
        await asyncio.sleep(_LOOK)
        with contextlib.suppress(WorldAgentError):  # a database that is down is told by the turn itself
            found = await log.keyed(turn.thread, turn.key or "")
    if not waiting.expired():
        waiting.reschedule(asyncio.get_running_loop().time())


__all__ = ["KeyBegun", "unless_begun"]
