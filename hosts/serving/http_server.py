"""A service over streamable HTTP, on uvicorn, until a signal arrives."""

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
from .service import Service, drain, stopped_by_signals

LAST_SECONDS: Final = 5
"""Time that clients get to read their answers after the service was drained."""

MAX_HEAD_BYTES: Final = 1 << 15
"""Limit for the head of a request that arrives in pieces."""

SEND_BUFFER_BYTES: Final = 1 << 18
"""What the operating system buffers for a client that does not read. Its own default is several MB."""


async def serve_http(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    *,
    ready: Callable[[Address], None] | None = None,
    draining: Callable[[], None] | None = None,
    tokens_by: str = "ask for a token",
) -> int | None:
    """Serve until a signal arrives; a second one ends the process at once.

    At the first signal the server stops accepting connections and drains the service. Open connections are still
    served meanwhile, `/ready` among them. Then streams end, and answers under way are sent.

    Args:
        service: What is served.
        address: Where to listen.
        options: Its reach and its limits.
        ready: Called with the actual address as soon as the server can be reached.
        draining: Called when the end begins.
        tokens_by: How to set tokens, for the remedy of the error if there are none.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: Other machines can reach the address, but that was not allowed or there are no tokens; or the
            address or the certificate cannot be used.
    """
    _check_reach(service, address, options, tokens_by)
    context = _tls_context(options)
    app = application(service, address, options)

    async def end() -> None:
        await drain(service, options.drain, draining)
        app.state.sessions.end_listening()

    config = uvicorn.Config(
        app,
        http="h11",  # the others do not bound the head of a request
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=options.connections,
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]  # fractions of a second work
        timeout_graceful_shutdown=LAST_SECONDS,
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
        for server in self.servers:  # a successor can take the port; open connections are still served
            server.close()
        await self._end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # `serve_http` handles them; uvicorn would raise them again at the end


def _check_reach(service: Service, address: Address, options: HttpOptions, tokens_by: str) -> None:
    """Refuse an address that other machines reach, unless that is allowed and tokens are required."""
    if address.is_loopback:
        return
    reached = f"{address.host!r} can be reached from other machines"
    if not (options.allow_remote or options.tls):
        remedy = "listen on 127.0.0.1, or give tokens and a certificate, or tokens and --allow-remote"
        raise InvalidArgument(reached, remedy=remedy)
    if service.tokens is None:
        raise InvalidArgument(f"{reached}, and no token is asked for", remedy=tokens_by)


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
        problem = (error.reason or "they are no PEM files").replace("_", " ").lower()
    except (OSError, RuntimeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    raise InvalidArgument(
        f"the certificate {str(options.tls_cert)!r} and the key {str(options.tls_key)!r} cannot be used: {problem}",
        remedy="give PEM files that can be read and belong together, the key without a password",
    )


def _listening(address: Address) -> socket.socket:
    """A socket that listens at the address."""
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
        problem = os.strerror(error.errno) if error.errno else type(error).__name__  # `strerror` has the address again
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there"
            remedy = "choose another port, or 0 for a free one; `worldagent ps` lists the sidecars that run"
    except UnicodeError:
        pass
    raise InvalidArgument(f"{address.authority}:{address.port} cannot be listened on: {problem}", remedy=remedy)


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files, as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit; some systems have a lower one
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < wanted:  # a negative number is no limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


__all__ = ["serve_http"]
