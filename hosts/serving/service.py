"""What is served: an MCP server, the tokens that it takes, and how it ends. No transport is known here."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, runtime_checkable

from mcp.server.lowlevel import Server

from .logs import log
from .tokens import Tokens

_EXTRA_SECONDS: Final = 2.0
"""Seconds beyond its own that a service may take to drain."""


class Service(Protocol):
    """An MCP server that a transport can serve. One with more to say is `Operated`."""

    @property
    def server(self) -> Server[Any]:
        """The MCP server."""
        ...

    @property
    def tokens(self) -> Tokens[Any] | None:
        """The bearer tokens that it takes over HTTP; None takes every caller."""
        ...

    def end_streams(self) -> None:
        """End the streams that have no end of their own, so that a transport can close."""
        ...


@runtime_checkable
class Operated(Protocol):
    """A service that is watched and ended in order. What it tells has no content and nothing secret."""

    def health(self) -> Mapping[str, Any]:
        """How the process is, as JSON for `/health`. At once, without asking anybody."""
        ...

    async def ready(self) -> Mapping[str, Any]:
        """Whether new work is taken, as JSON for `/ready`; `"ready"` says yes or no."""
        ...

    async def drain(self, seconds: float) -> None:
        """Take no new work, and bring what runs to a place where it can be resumed, within so many seconds."""
        ...


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Generator[list[int], None, None]:
    """Call `stop` in the running loop at the first SIGTERM or Ctrl-C; a second one ends the process at once.

    Signals reach the main thread only. In another thread this does nothing.

    Yields:
        A list that the number of the signal is put into.
    """
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def caught(number: int, frame: FrameType | None) -> None:
        restore()
        stopped.append(number)
        loop.call_soon_threadsafe(stop)

    before |= {number: signal.signal(number, caught) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        restore()


async def drain(service: Service, seconds: float, begins: Callable[[], None] | None) -> None:
    """Drain a service and end its streams, whatever goes wrong with either: the process ends in any case.

    Args:
        service: The service.
        seconds: Seconds that its work gets to finish.
        begins: Called before.
    """
    if begins is not None:
        begins()
    try:
        if isinstance(service, Operated):
            await asyncio.wait_for(service.drain(seconds), seconds + _EXTRA_SECONDS)
    except TimeoutError:
        log.warning("the service was still at work after %g seconds", seconds + _EXTRA_SECONDS)
    except Exception as failure:  # not by name: a service may fail with anything, and the process ends all the same
        log.error("the service did not drain: %s", type(failure).__name__)
    finally:
        service.end_streams()


__all__ = ["Operated", "Service", "drain", "stopped_by_signals"]
