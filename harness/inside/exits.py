"""Keeps user code from ending the process. `harness.guard` reports the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Exited(Exception):
    """The code tried to end the process, such as by `sys.exit()`."""

    def __init__(self, original: BaseException) -> None:
        super().__init__()
        self.original = original


async def without_exit(running: Awaitable[T]) -> T:
    """Wait for code that must not end the process, in the task that runs it; `guarded` handles the `Exited`.

    An event loop ends if a task raises something that is not an `Exception`. A cancellation and Ctrl+C pass through.

    Raises:
        Exited: The code raised `SystemExit` or another exception that is not an `Exception`.
    """
    task = asyncio.current_task()
    try:
        return await running
    except BaseException as error:  # broad: `SystemExit`, and other subclasses of `BaseException`
        if isinstance(error, Exception | asyncio.CancelledError | KeyboardInterrupt):
            raise
        if isinstance(error, GeneratorExit) and asyncio.current_task() is not task:  # the coroutine is being closed
            raise
        exited = error
    raise Exited(exited)


__all__ = ["Exited", "without_exit"]
