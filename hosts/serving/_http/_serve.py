"""A service over streamable HTTP until a signal asks for the end; what it may take up is in `_connections`."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import uvicorn

from .._ending import drained, stopped_by_signals
from .._options import HttpOptions
from ..address import Address
from ..service import Operated, Service
from ._application import Operation, application
from ._connections import BURST, QUEUE, SEND_BUFFER, allow_files, guarded
from ._exchange import Streams
from ._reach import check_reach, listening, tls_context

LAST = 5
"""Seconds in which answers still under way reach their clients once all else has ended."""

TOKENS = "give tokens"


async def serve_http(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    *,
    ready: Callable[[Address], None] | None = None,
    draining: Callable[[], None] | None = None,
    tokens_by: str = "ask for a token",
) -> int | None:
    """Serve until a signal asks for the end; a second one ends the process at once.

    At the first, no connection is accepted any more and `/ready` says so; the service is drained; streams end, and
    answers under way are given.

    Args:
        service: What is served.
        address: Where to listen.
        options: Its reach and its limits.
        ready: Told where it listens, as soon as it can be reached.
        draining: Told when the end begins.
        tokens_by: How a person gives tokens, for the remedy where there are none.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: The address is not for this machine alone and that was not allowed, or there are no tokens; or
            it cannot be listened on; or the certificate cannot be used.
    """
    check_reach(service, address, options, tokens=tokens_by)
    context = tls_context(options)
    allow_files(options)
    operation = Operation(service) if isinstance(service, Operated) else None
    streams = Streams()
    config = uvicorn.Config(
        application(service, address, options, streams=streams, operation=operation),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]  # whole seconds are not asked for anywhere
        timeout_graceful_shutdown=LAST,
        h11_max_incomplete_event_size=options.max_header_bytes,
    )
    server = _Server(config, options, context)
    stopped: list[int] = []
    ending: list[asyncio.Task[None]] = []

    async def end() -> None:
        if draining is not None:
            draining()
        server.stop_accepting()
        if operation is not None:
            operation.draining = True
        await drained(service, options.drain)
        streams.end()
        server.should_exit = True

    def stop(number: int) -> None:
        stopped.append(number)
        ending.append(asyncio.create_task(end()))

    with closing(listening(address)) as listener, stopped_by_signals(stop):
        if ready is not None:
            ready(Address(address.host, listener.getsockname()[1], tls=options.tls))
        await server.serve(sockets=[listener])
    await asyncio.gather(*ending)
    return stopped[0] if stopped else None


class _Server(uvicorn.Server):
    """A server that leaves signals to us: it would raise them once more when it has ended."""

    def __init__(self, config: uvicorn.Config, options: HttpOptions, context: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._class = guarded(options)
        self._handshake = None if context is None else options.arrival
        self._context = context
        self.servers: list[asyncio.base_events.Server] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as the library does, with numbers of ours for what waits, and with an end for TLS handshakes."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            made = await loop.create_server(
                self._connection,
                sock=listener,
                backlog=BURST,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake,
            )
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections take it over
            listener.listen(QUEUE)  # asyncio has one number for what may wait and for what it accepts in a row
            self.servers.append(made)
        self.started = True

    def stop_accepting(self) -> None:
        """Let nobody connect any more; connections go on."""
        for server in self.servers:
            server.close()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def _connection(self) -> asyncio.Protocol:
        return self._class(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


__all__ = ["serve_http"]
