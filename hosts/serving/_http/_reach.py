"""Who can reach a server: the address that it may listen on, its TLS, and the names that it is called by."""

from __future__ import annotations

import errno
import os
import socket
import ssl

from ....core.errors import InvalidArgument
from .._options import HttpOptions
from ..address import Address
from ..service import Service
from ._front import LOOPBACK

REMEDY = "listen on 127.0.0.1, or give tokens and a certificate, or tokens and --allow-remote"


def check_reach(service: Service, address: Address, options: HttpOptions, *, tokens: str) -> None:
    """Refuse an address that other machines reach, unless they may, and need a token.

    Args:
        service: What is served.
        address: Where.
        options: Whether other machines may reach it.
        tokens: How a person gives tokens, for the remedy.

    Raises:
        InvalidArgument: It must not be reached like this.
    """
    if address.is_loopback:
        return
    if not (options.allow_remote or options.tls):
        raise InvalidArgument(f"{address.host!r} can be reached from other machines", remedy=REMEDY)
    if service.tokens is None:
        raise InvalidArgument(
            f"{address.host!r} can be reached from other machines, and no token is asked for", remedy=tokens
        )


def allowed_names(address: Address, options: HttpOptions) -> tuple[str, ...] | None:
    """The names that requests may be meant for; None for any.

    A page in a browser may call this machine by a name of its own (DNS rebinding). On loopback no name but ours can be
    meant.
    """
    if options.names or address.is_loopback:
        return (address.authority, *LOOPBACK, *options.names)
    return None


def tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    """The server's side of TLS, of the files that the options name.

    Raises:
        InvalidArgument: They cannot be read, do not fit each other, or the key has a password.
    """
    if options.tls_cert is None or options.tls_key is None:
        return None
    problem = ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
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


def listening(address: Address) -> socket.socket:
    """Listen.

    Raises:
        InvalidArgument: The address cannot be listened on.
    """
    problem, remedy = "", "choose another address, or port 0 for a free one"
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((address.host, address.port), family=family)
        # asyncio does this only for sockets that name their protocol; without it each answer waits 40 ms for an ACK.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except socket.gaierror as error:
        problem = error.strerror or "no such name"
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__  # `strerror` has the address again
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there"
            remedy = "choose another port, or 0 for a free one; `worldagent ps` lists the sidecars that run"
    except UnicodeError:
        problem = "no such name"
    raise InvalidArgument(f"{address.authority}:{address.port} cannot be listened on: {problem}", remedy=remedy)


__all__ = ["allowed_names", "check_reach", "listening", "tls_context"]
