"""How many connections a host holds, and how long a request may take to arrive. What it answers is not known here.

All of this is before any token is looked at: whoever can connect could otherwise use up the files of the process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # there is no such limit on Windows
    resource = None  # type: ignore[assignment]  # so that what follows can ask

ARRIVAL: Final = 10.0
"""Seconds that a request may take to arrive, head and body."""

MOST: Final = 512
"""Connections at once, if the process may open twice as many files."""

BURST: Final = 16
"""Connections that are accepted in a row. One that is refused has its file a few rounds of the loop longer."""

QUEUE: Final = 1024
"""Connections that wait to be accepted; the system may hold fewer."""

_log = logging.getLogger("worldagent.role_host")


class GuardedConnection(H11Protocol):
    """A connection that is closed where a request does not arrive in time.

    Above the most connections the one that waits longest for its request is closed. Answers under way are not cut,
    however long they take: streams of changes have no end.
    """

    _since = 0.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the library does
        super().connection_made(transport)
        self._since = self.loop.time()
        self._make_room()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # a request came with the one before, but for the end of its body
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    @property
    def _waiting(self) -> bool:
        """Whether the next step is the client's: no request has arrived whole and is still to be answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _watch(self) -> None:
        if not self._waiting:
            self._stop_watching()
        elif self._limit is None:
            self._limit = self.loop.call_later(ARRIVAL, self._drop)

    def _stop_watching(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _drop(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        most = _most()
        if len(self.connections) <= most:
            return
        everyone = cast("set[Any]", self.connections)  # all of this class
        held: list[GuardedConnection] = [each for each in everyone if not each.transport.is_closing()]
        if len(held) > most:
            _log.warning("over %d connections at once: the one that waits longest for its request is closed", most)
            # They came in the order of `_since`. Where all others are being answered, it is this one.
            min((each for each in held if each._waiting), key=lambda each: each._since)._drop()


def _most() -> int:
    if resource is None:
        return MOST
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 2))


__all__ = ["BURST", "QUEUE", "GuardedConnection"]
