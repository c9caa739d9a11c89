"""What hosts do for the members of an agent's society."""

from __future__ import annotations

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
async def delivering(agent: WorldAgent) -> AsyncGenerator[None]:
    """Deliver the messages of an open agent's society inside the block; an agent without one is left alone."""
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


__all__ = ["delivering", "society_of"]
