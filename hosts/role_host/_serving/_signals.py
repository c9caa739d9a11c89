"""SIGTERM and Ctrl-C: the first one ends a host in order, the second one as if nobody had asked for order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[int], None]) -> Generator[None, None, None]:
    """Call `stop` in the running loop with the number of the first signal that asks the process to end.

    Signals reach the main thread only; in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def caught(number: int, frame: FrameType | None) -> None:
        restore()
        loop.call_soon_threadsafe(stop, number)

    before |= {number: signal.signal(number, caught) for number in _STOPS}
    try:
        yield
    finally:
        restore()


__all__ = ["stopped_by_signals"]
