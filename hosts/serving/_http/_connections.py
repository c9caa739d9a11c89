"""How many connections a server holds, how long a request may take to arrive, and how long an answer may wait.

What it answers is not known here. All of this is before any token is looked at: whoever can connect could otherwise use
up the files of the process.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .._options import HttpOptions
from ..logs import log

try:
    import resource
except ImportError:  # there is no such limit on Windows
    resource = None  # type: ignore[assignment]  # so that what follows can ask

BURST: Final = 16
"""Connections that are accepted in a row. One that is refused has its file a few rounds of the loop longer."""

QUEUE: Final = 1024
"""Connections that wait to be accepted; the system may hold fewer."""

SEND_BUFFER: Final = 1 << 18
"""Bytes that the system keeps for a client that does not read; it would take some MB by itself."""

_LOOKS: Final = 4  # at a client that may have stopped to read, before it is cut off
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class GuardedConnection(H11Protocol):
    """A connection that is closed where a request does not arrive in time, or an answer is not read.

    Above the most connections the one that waits longest for its request is closed. Answers under way are not cut,
    however long they take, as long as they are read: streams have no end.
    """

    options = HttpOptions()

    _since = 0.0
    _limit: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _unread = (0, 0.0)  # bytes that wait to be sent, and since when it has been so many

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the library does
        super().connection_made(transport)
        self._since = self.loop.time()
        self._make_room()
        self._watch()
        self._look_later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # a request came with the one before, but for the end of its body
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; the library calls a head that is too long by the same number."""
        trailing, _ = self.conn.trailing_data
        if len(trailing) >= self.options.max_header_bytes and self.conn.our_state is h11.IDLE:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer is under way: there is no place for another
            self._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().connection_lost(exc)
        # The library leaves its own timer where the client reset the connection, and with it all that there was.
        self._unset_keepalive_if_required()

    @property
    def _waiting(self) -> bool:
        """Whether the next step is the client's: no request has arrived whole and is still to be answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _watch(self) -> None:
        if not self._waiting:
            self._stop_watching()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.options.arrival, self._drop)

    def _stop_watching(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _look_later(self) -> None:
        self._reading = self.loop.call_later(self.options.stall / _LOOKS, self._look)

    def _look(self) -> None:
        """Cut a client off that reads nothing. While no more is written, the bytes that wait can only become fewer."""
        unread, now = self.transport.get_write_buffer_size(), self.loop.time()
        stands = self.flow.write_paused or self.transport.is_closing()
        if not (unread and stands and unread == self._unread[0]):
            self._unread = (unread, now)
        elif now - self._unread[1] >= self.options.stall:
            log.warning("a client has read nothing for %g seconds and is cut off", self.options.stall)
            self._drop()
            return
        self._look_later()

    def _drop(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        most = _most(self.options.connections)
        if len(self.connections) <= most:
            return
        everyone = cast("set[Any]", self.connections)  # all of this class
        held: list[GuardedConnection] = [each for each in everyone if not each.transport.is_closing()]
        if len(held) > most:
            log.warning("over %d connections at once: the one that waits longest for its request is closed", most)
            # They came in the order of `_since`. Where all others are being answered, it is this one.
            min((each for each in held if each._waiting), key=lambda each: each._since)._drop()


def guarded(options: HttpOptions) -> type[GuardedConnection]:
    """The class of connections with these limits, for a server that makes its connections itself."""
    return type("GuardedConnection", (GuardedConnection,), {"options": options})


def allow_files(options: HttpOptions) -> None:
    """Let the process open as many files as its connections need, where the system lets it say so."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * options.connections
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # a system with a lower limit of its own
        log.debug("the limit of open files stays at %d", soft)


def _most(wanted: int) -> int:
    if resource is None:
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, files // 2))


__all__ = ["BURST", "QUEUE", "SEND_BUFFER", "GuardedConnection", "allow_files", "guarded"]
