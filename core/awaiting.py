"""Helpers for coroutines that are cancelled, or that no task awaits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Run work that is final once it is done, such as a transaction. A cancelled caller still waits for its end.

    Args:
        work: The work. It runs in a separate task.

    Returns:
        The result of the work, and whether the caller was cancelled while it waited.

    Raises:
        BaseException: The work raised it, whether or not the caller was cancelled. The work has then had no effect.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


def abandoned(task: asyncio.Task[Any] | None) -> bool:
    """Whether the garbage collector is closing the calling coroutine, rather than its task ending it.

    Call it while the coroutine handles its exception. The collector can run in the middle of anything that a thread
    does, such as submitting a job to a thread pool while it holds the pool's locks. So an abandoned coroutine must not
    submit jobs and must not wait. What it has open is released with the last reference to it.

    Args:
        task: The task that the coroutine ran in: the `asyncio.current_task()` it saw earlier.
    """
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs in this thread
        return True


__all__ = ["abandoned", "uninterrupted"]
