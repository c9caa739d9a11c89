"""Code that wants the process to end, where it runs. Who is told of it is `harness._guard`'s matter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Exited(Exception):
    """The code wants the process to end, such as by `sys.exit()`."""

    def __init__(self, original: BaseException) -> None:
        super().__init__()
        self.original = original


async def kept_in(running: Awaitable[T]) -> T:
    """Wait, in the very task that it runs in, for code that must not end the process; `guarded` is told.

    An event loop ends where a task of it raises what is no `Exception`. The program's own end goes through: being
    cancelled, and Ctrl+C.
    """
    task = asyncio.current_task()
    try:
        return await running
    except BaseException as error:  # not by name: `SystemExit`, and what somebody has made of `BaseException`
        if isinstance(error, Exception | asyncio.CancelledError | KeyboardInterrupt):
            raise
        if isinstance(error, GeneratorExit) and asyncio.current_task() is not task:  # the coroutine is closed
            raise
        exited = error
    raise Exited(exited)


__all__ = ["Exited", "kept_in"]
