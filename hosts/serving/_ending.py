"""The end of a server: the signals that ask for it, and what its service does then. No transport is known here.

The first SIGTERM or Ctrl-C ends it in order, the second one as if nobody had asked for order.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .logs import log
from .service import Operated, Service

_MORE = 2.0
"""Seconds beyond its own that a service may take to drain."""


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


async def drained(service: Service, seconds: float) -> None:
    """Drain a service and end its streams, whatever goes wrong with either; the process ends in any case."""
    try:
        if isinstance(service, Operated):
            await asyncio.wait_for(service.drain(seconds), seconds + _MORE)
    except TimeoutError:
        log.warning("the service was still at work after %g seconds", seconds + _MORE)
    except Exception as failure:  # not by name: a service may fail with anything, and the process ends all the same
        log.error("the service did not drain: %s", type(failure).__name__)
    finally:
        service.end_streams()


__all__ = ["drained", "stopped_by_signals"]
