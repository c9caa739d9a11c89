"""How a coroutine ends that is cancelled, or that nobody awaits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Wait for the end of something that stands once it is done, such as a transaction, also where one is cancelled.

    Args:
        work: What is done, in a task of its own.

    Returns:
        What it gave, and whether whoever waited was cancelled meanwhile.

    Raises:
        BaseException: What it raised, also where whoever waited was cancelled: nothing stands then.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


def abandoned(task: asyncio.Task[Any] | None) -> bool:
    """Whether the coroutine that asks, while it fails, is closed by the collector and not ended by its task.

    The collector may come in the middle of whatever a thread does, such as handing a thread pool a job, whose locks it
    holds then. So an abandoned coroutine hands over no job of its own, and waits for nothing: what it has open goes
    with its last owner.

    Args:
        task: The task that it ran in, `asyncio.current_task()` of before.
    """
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no loop runs in this thread
        return True


__all__ = ["abandoned", "uninterrupted"]
