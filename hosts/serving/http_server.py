"""A service over streamable HTTP, on uvicorn, until a signal asks for the end."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager, suppress
from typing import Final

import uvicorn

from ...core.errors import InvalidArgument
from .address import Address, HttpOptions
from .http_app import application
from .service import Service, drained, stopped_by_signals

LAST_SECONDS: Final = 5
"""In which answers still under way reach their clients once all else has ended."""

MAX_HEAD_BYTES: Final = 1 << 15
"""Of a request whose head arrives in pieces."""

SEND_BUFFER_BYTES: Final = 1 << 18
"""That the system keeps for a client that does not read; it would take some MB by itself."""


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

    At the first, no connection is accepted any more; the service is drained, which `/ready` tells on connections that
    are open; streams end, and answers under way are given.

    Args:
        service: What is served.
        address: Where to listen.
        options: Its reach and its limits.
        ready: Told where it listens, as soon as it can be reached.
        draining: Called when the end begins.
        tokens_by: How a person gives tokens, for the remedy where there are none.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: The address is not for this machine alone and that was not allowed, or there are no tokens; or
            it cannot be listened on; or the certificate cannot be used.
    """
    _check_reach(service, address, options, tokens_by)
    context = _tls_context(options)
    app = application(service, address, options)

    async def drain() -> None:
        if draining is not None:
            draining()
        await drained(service, options.drain)
        app.state.sessions.end_listening()

    config = uvicorn.Config(
        app,
        http="h11",  # others have no bound on a head
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=options.connections,
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]  # whole seconds are not asked for anywhere
        timeout_graceful_shutdown=LAST_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    server = _Server(config, drain)
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(number)
        server.should_exit = True

    _allow_files(2 * options.connections)
    with closing(_listening(address)) as listener, stopped_by_signals(stop):
        if ready is not None:
            ready(Address(address.host, listener.getsockname()[1], tls=options.tls))
        await server.serve(sockets=[listener])
    return stopped[0] if stopped else None


class _Server(uvicorn.Server):
    """uvicorn's server, with a service that is drained before connections are closed.

    Args:
        config: Its configuration.
        drain: Drains the service.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:  # a successor can have the port; connections that are open are served
            server.close()
        await self._drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # they are ours: the library would raise them once more when it has ended


def _check_reach(service: Service, address: Address, options: HttpOptions, tokens_by: str) -> None:
    """Refuse an address that other machines reach, unless they may, and need a token."""
    if address.is_loopback:
        return
    reached = f"{address.host!r} can be reached from other machines"
    if not (options.allow_remote or options.tls):
        remedy = "listen on 127.0.0.1, or give tokens and a certificate, or tokens and --allow-remote"
        raise InvalidArgument(reached, remedy=remedy)
    if service.tokens is None:
        raise InvalidArgument(f"{reached}, and no token is asked for", remedy=tokens_by)


def _tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    """The server's side of TLS, of the files that the options name."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    problem = ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # With a password, if an empty one, OpenSSL asks nobody for it.
        context.load_cert_chain(options.tls_cert.expanduser(), options.tls_key.expanduser(), password=lambda: b"")
        return context
    except ssl.SSLError as error:
        problem = (error.reason or "they are no PEM files").replace("_", " ").lower()
    except (OSError, RuntimeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    raise InvalidArgument(
        f"the certificate {str(options.tls_cert)!r} and the key {str(options.tls_key)!r} cannot be used: {problem}",
        remedy="give PEM files that can be read and belong together, the key without a password",
    )


def _listening(address: Address) -> socket.socket:
    """Listen."""
    problem, remedy = "no such name", "choose another address, or port 0 for a free one"
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((address.host, address.port), family=family)
        # Connections take both over. asyncio sets TCP_NODELAY only where a socket names its protocol; without it each
        # answer waits 40 ms for an ACK.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return made
    except socket.gaierror as error:
        problem = error.strerror or problem
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__  # `strerror` has the address again
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there"
            remedy = "choose another port, or 0 for a free one; `worldagent ps` lists the sidecars that run"
    except UnicodeError:
        pass
    raise InvalidArgument(f"{address.authority}:{address.port} cannot be listened on: {problem}", remedy=remedy)


def _allow_files(wanted: int) -> None:
    """Let the process open as many files, where the system lets it say so."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit, others a lower one of their own
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < wanted:  # below 0 is without end
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


__all__ = ["serve_http"]
