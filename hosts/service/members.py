"""What hosts do for the members of an agent's society."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ...core.errors import InvalidArgument

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...society import Society


def society_of(agent: WorldAgent) -> Society | None:
    """The society of an open agent; None if it has none."""
    with suppress(InvalidArgument):
        return agent.society
    return None


@asynccontextmanager
async def delivering(agent: WorldAgent) -> AsyncGenerator[None]:
    """Deliver the messages of an open agent's society inside the block; an agent without one is left alone."""
    if society_of(agent) is None:
        yield
        return
    from ...autonomy import Gateway  # only agents with a society load it

    async with Gateway(agent):
        yield


__all__ = ["delivering", "society_of"]
