"""Somebody's code under way: what it raises of its own is told without what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..core.errors import TaskFailed, WorldAgentError

T = TypeVar("T")

OnError = Callable[[BaseException], None]


async def guarded(running: Awaitable[T], *, what: str, on_error: OnError | None) -> T:
    """Wait for somebody's code; what it raises of its own becomes a `TaskFailed`, and `on_error` gets the original.

    Args:
        running: The code under way.
        what: What it is, for the error.
        on_error: Gets the original.
    """
    problem: BaseException
    try:
        return await running
    except WorldAgentError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        problem = error  # nobody cancels the caller: something that the code waited for was cancelled
    except Exception as error:  # somebody's code may raise anything; `on_error` gets it as it is
        problem = error
    if on_error is not None:
        on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote what a model said
    raise TaskFailed(f"{what} failed with {kind}", remedy="see on_error for the original, and mend it")


__all__ = ["OnError", "guarded"]
