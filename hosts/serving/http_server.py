"""Serves a service over streamable HTTP, on uvicorn, until a signal arrives."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager, suppress
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...core.errors import InvalidArgument
from .address import Address, HttpOptions
from .http_app import application
from .service import Service, drain, stopped_by_signals

CLOSE_SECONDS: Final = 5
"""Seconds that clients get to read their answers after the service was drained."""

MAX_HEAD_BYTES: Final = 1 << 15
"""The largest head of a request that arrives in pieces."""

SEND_BUFFER_BYTES: Final = 1 << 18
"""Bytes that the operating system buffers for a client that does not read. The system's default is several MB."""


async def serve_http(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    *,
    ready: Callable[[Address], None] | None = None,
    draining: Callable[[], None] | None = None,
    tokens_by: str = "ask for a token",
) -> int | None:
    """Serve until a signal arrives; a second signal ends the process at once.

    At the first signal the server stops accepting connections and drains the service. Meanwhile it still serves open
    connections, including their calls of `/ready`. Then streams end, and the remaining answers are sent.

    Args:
        service: The service.
        address: Where to listen.
        options: Who can reach the server, and its limits.
        ready: Called with the actual address as soon as the server can be reached.
        draining: Called when draining begins.
        tokens_by: How to set tokens; it is the remedy of the error for missing tokens.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: Other machines can reach the address, but the options do not allow it or the service has no
            tokens. Or the address or the certificate cannot be used.
    """
    _check_reach(service, address, options, tokens_by)
    context = _tls_context(options)
    app = application(service, address, options)

    async def end() -> None:
        await drain(service, options.drain, draining)
        app.state.sessions.end_listening()

    config = uvicorn.Config(
        app,
        http=_Protocol,  # uvicorn's other parsers do not bound the head of a request
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=options.connections,
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]  # fractions of a second work
        timeout_graceful_shutdown=CLOSE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    server = _Server(config, end)
    _allow_files(2 * options.connections)
    with closing(_listening(address)) as listener, stopped_by_signals(server.stop) as stopped:
        if ready is not None:
            ready(Address(address.host, listener.getsockname()[1], tls=options.tls))
        await server.serve(sockets=[listener])
    return stopped[0] if stopped else None


class _Protocol(H11Protocol):
    """A connection that is freed when its client resets it; uvicorn keeps it until its keep-alive timer fires."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()


class _Server(uvicorn.Server):
    """uvicorn's server, which drains the service before it closes connections.

    Args:
        config: Its configuration.
        end: Drains the service.
    """

    def __init__(self, config: uvicorn.Config, end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._end = end

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:  # frees the port for a new process; open connections are still served
            server.close()
        await self._end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # `serve_http` handles signals; uvicorn would raise them again at the end


def _check_reach(service: Service, address: Address, options: HttpOptions, tokens_by: str) -> None:
    """Refuse an address that other machines can reach, unless that is allowed and the service has tokens."""
    if address.is_loopback:
        return
    reached = f"{address.host!r} can be reached from other machines"
    if not (options.allow_remote or options.tls):
        remedy = "listen on 127.0.0.1, or set tokens and a certificate, or tokens and --allow-remote"
        raise InvalidArgument(reached, remedy=remedy)
    if service.tokens is None:
        raise InvalidArgument(f"{reached}, and no token is required", remedy=tokens_by)


def _tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    """The TLS context of the server, or None without TLS."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    problem = ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # With an empty password OpenSSL fails at an encrypted key, instead of asking on the terminal.
        context.load_cert_chain(options.tls_cert.expanduser(), options.tls_key.expanduser(), password=lambda: b"")
        return context
    except ssl.SSLError as error:
        problem = (error.reason or "they are not PEM files").replace("_", " ").lower()
    except (OSError, RuntimeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    raise InvalidArgument(
        f"the certificate {str(options.tls_cert)!r} and the key {str(options.tls_key)!r} cannot be used: {problem}",
        remedy="give readable PEM files of one certificate and its key; the key must have no password",
    )


def _listening(address: Address) -> socket.socket:
    """Return a socket that listens at the address."""
    problem, remedy = "no such name", "choose another address, or port 0 for a free one"
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((address.host, address.port), family=family)
        # Connections inherit both options. asyncio sets TCP_NODELAY only if the socket names its protocol; without it
        # each answer waits 40 ms for an ACK.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return made
    except socket.gaierror as error:
        problem = error.strerror or problem
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__  # `strerror` repeats the address
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there"
            remedy = "choose another port, or 0 for a free one; `worldagent ps` lists the running sidecars"
    except UnicodeError:
        pass
    raise InvalidArgument(f"cannot listen on {address.authority}:{address.port}: {problem}", remedy=remedy)


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit; some systems have a lower one
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < wanted:  # a negative number means unlimited
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


__all__ = ["serve_http"]
