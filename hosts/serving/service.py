"""A service: an MCP server, the tokens that it accepts, and how it ends. It is independent of the transport."""

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
"""Seconds that a service can take to drain beyond the time that it was given."""


class Service(Protocol):
    """An MCP server that a transport can serve. A service can also be `Operated`."""

    @property
    def server(self) -> Server[Any]:
        """The MCP server."""
        ...

    @property
    def tokens(self) -> Tokens[Any] | None:
        """The bearer tokens that it accepts over HTTP; None accepts every caller."""
        ...

    def end_streams(self) -> None:
        """End the streams that do not end by themselves, so that a transport can close."""
        ...


@runtime_checkable
class Operated(Protocol):
    """A service with health checks and an orderly end. Its reports hold no content and no secrets."""

    def health(self) -> Mapping[str, Any]:
        """Report the state of the process, as JSON for `/health`. It returns at once and waits for nothing."""
        ...

    async def ready(self) -> Mapping[str, Any]:
        """Report whether it accepts new work, as JSON for `/ready`; the field `ready` is true or false."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and bring running work to a point where it can be resumed, within `seconds`."""
        ...


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Generator[list[int], None, None]:
    """Call `stop` in the running loop at the first SIGTERM or Ctrl-C; a second one ends the process at once.

    Signals reach the main thread only. In another thread this does nothing.

    Yields:
        A list that receives the number of the signal.
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


async def drain(service: Service, seconds: float, on_start: Callable[[], None] | None) -> None:
    """Drain a service and end its streams. Failures are logged and not raised, since the process ends in any case.

    Args:
        service: The service.
        seconds: Seconds that its work gets to finish.
        begins: Called before draining.
    """
    if on_start is not None:
        on_start()
    try:
        if isinstance(service, Operated):
            await asyncio.wait_for(service.drain(seconds), seconds + _EXTRA_SECONDS)
    except TimeoutError:
        log.warning("the service was still at work after %g seconds", seconds + _EXTRA_SECONDS)
    except Exception as failure:  # of any type: a service can raise anything, and the process must still end
        log.error("the service did not drain: %s", type(failure).__name__)
    finally:
        service.end_streams()


__all__ = ["Operated", "Service", "drain", "stopped_by_signals"]
