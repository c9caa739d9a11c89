"""Signals that a command answers in its event loop, for as long as it wants to."""

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
    """Have the running loop call a handler at its signal.

    Event loops on Windows take no handlers, and only the main thread gets signals: elsewhere they keep what they do by
    themselves.

    Args:
        handlers: What is called, by the signal's number.
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
    """Give what `work` gives, or None where SIGTERM cancelled it; what it cleans up at an interrupt, it has then."""
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
