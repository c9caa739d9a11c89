"""What hosts that stay do besides the calls of their clients: deliver members' messages, begin what others queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from ...agent.runtime.inside import inside
from ...core.errors import InvalidArgument

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...members.society import Society

END_SECONDS: Final = 5.0
"""Seconds that deliveries get to end."""


def society_of(agent: WorldAgent) -> Society | None:
    """The society of an open agent; None if it has none."""
    found: Society | None = None
    with suppress(InvalidArgument):
        found = agent.society
    return found


@asynccontextmanager
async def looking(agent: WorldAgent) -> AsyncGenerator[None]:
    """Begin, inside the block, what other processes queue on the threads of an open agent's workspace (T16)."""
    look = asyncio.ensure_future(inside(agent).pending.watch(agent.workspace))
    try:
        yield
    finally:
        look.cancel()
        await asyncio.wait({look})


@asynccontextmanager
async def delivering(agent: WorldAgent) -> AsyncGenerator[None]:
    """Begin what is queued, and deliver the messages of an open agent's society, if it has one, inside the block."""
    async with looking(agent), _delivering(agent):
        yield


@asynccontextmanager
async def _delivering(agent: WorldAgent) -> AsyncGenerator[None]:
    if society_of(agent) is None:
        yield
        return
    from ...members.gateway import Gateway  # only agents with a society load it

    database = inside(agent).stores.database
    async with AsyncExitStack() as delivery:
        await delivery.enter_async_context(Gateway(agent))
        yield
        with database.given_up_after(END_SECONDS):
            await delivery.aclose()


__all__ = ["delivering", "looking", "society_of"]
