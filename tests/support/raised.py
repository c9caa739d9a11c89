"""The error that something raises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from worldagent.core.errors import WorldAgentError


async def failure(running: Awaitable[Any]) -> WorldAgentError:
    """The error that a call raises."""
    try:
        value = await running
    except WorldAgentError as error:
        return error
    raise AssertionError(f"it gave {value!r}")


def refused(make: Callable[[], Any], kind: type[WorldAgentError] = WorldAgentError) -> WorldAgentError:
    """The error of a kind that making something raises."""
    try:
        value = make()
    except kind as error:
        return error
    raise AssertionError(f"it gave {value!r}")


__all__ = ["failure", "refused"]
