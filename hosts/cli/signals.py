"""Signals that a command handles in its event loop, inside a block."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def signals_handled(handlers: Mapping[int, Callable[[], object]]) -> Generator[None]:
    """Let the running loop call a handler for each signal.

    Event loops on Windows take no handlers, and only the main thread receives signals. In other cases, signals keep
    their default effect.

    Args:
        handlers: The handlers by signal number.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def until_sigterm(work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or None if SIGTERM cancelled it. It cleans up then, as after an interrupt."""
    task = asyncio.current_task()
    assert task is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    try:
        with signals_handled({signal.SIGTERM: stop}):
            return await work
    except asyncio.CancelledError:
        if not asked:
            raise
    return None
