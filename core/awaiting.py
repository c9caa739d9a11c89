"""Coroutines whose end nobody awaits any more: the collector closes them, wherever a thread is just then."""

from __future__ import annotations

import asyncio
from typing import Any


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


__all__ = ["abandoned"]
