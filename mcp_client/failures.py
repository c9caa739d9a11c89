"""Failures of a role host, as values. Each caller that one concerns gets a new error.

No text here comes from the host, because it could be a role or a secret of another party. The errors of the library are
distinguished by type and number and then dropped. `tools.failures` does the same for an MCP server.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..core.errors import AgentClosed, HostForbidden, HostUnavailable, RoleSourceInvalid, WorldAgentError
from .hosts import LONGEST_ANSWER

_REPORTED = "check the logs of the host, then try again"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that was not raised yet.

    Attributes:
        kind: The type of the error.
        problem: Its text.
        remedy: What the user can do.
        repeatable: Whether the host certainly did nothing, so that the call can be made again.
    """

    kind: type[WorldAgentError]
    problem: str
    remedy: str
    repeatable: bool = False

    def error(self) -> WorldAgentError:
        """A new error, which can be raised once."""
        return self.kind(self.problem, remedy=self.remedy)


class Failures:
    """Makes the failures of one role host. A subclass gives the types and remedies for another kind of peer.

    Args:
        label: The name of the host in errors.
        program: Whether the host is a program that the next call starts again.
    """

    PEER: ClassVar = "role host"
    UNAVAILABLE: ClassVar[type[WorldAgentError]] = HostUnavailable
    FORBIDDEN: ClassVar[type[WorldAgentError]] = HostForbidden
    INVALID: ClassVar[type[WorldAgentError]] = RoleSourceInvalid
    ANSWER: ClassVar = "make it answer as the contract of role hosts requires"
    LONGER: ClassVar = "find out why it is slow, or raise timeout= or the setting role_host_timeout"
    SHORTER: ClassVar = "make it answer with roles only"
    TOKEN: ClassVar = "pass a token that it accepts for this scope"

    def __init__(self, label: str, *, program: bool = False) -> None:
        self.name = f"{self.PEER} {label!r}"
        self.restart = "try again; the next call restarts it" if program else "start the host again"

    # --- in general -------------------------------------------------------------------------------------------------

    def unavailable(self, what: str, remedy: str) -> Failure:
        """The host cannot be used now. `what` follows its name in the text."""
        return Failure(self.UNAVAILABLE, f"{self.name} {what}", remedy)

    def invalid(self, what: str, remedy: str = "") -> Failure:
        """The host breaks the protocol or the contract. `what` follows its name in the text."""
        return Failure(self.INVALID, f"{self.name} {what}", remedy or self.ANSWER)

    def forbidden(self) -> Failure:
        """The host did not accept the token."""
        return Failure(self.FORBIDDEN, f"{self.name} refused access", self.TOKEN)

    # --- the connection ---------------------------------------------------------------------------------------------

    def unreachable(self, why: str, remedy: str = "start it, or correct its address or command") -> Failure:
        """The connection could not be opened."""
        return self.unavailable(f"could not be reached ({why})", remedy)

    def unopened(self, error: BaseException) -> Failure:
        """The reason why a connection failed, from the system errors that led to `error`."""
        for cause in _chain(error):
            match cause:
                case ssl.SSLError():
                    remedy = "install a certificate that this machine trusts, or correct the address"
                    return self.unreachable("its TLS certificate is not trusted", remedy)
                case socket.gaierror():
                    return self.unreachable("its name is not known")
                case ConnectionRefusedError():
                    return self.unreachable("nothing listens there")
                case FileNotFoundError() | NotADirectoryError():
                    return self.unreachable("there is no such program or folder")
                case PermissionError():
                    return self.unreachable("it is not an executable program")
                case OSError() if cause.errno == errno.ENOEXEC:
                    return self.unreachable("it is not a program that this machine can run")
                case _:
                    pass
        return self.unreachable(type(error).__name__)

    def late_connecting(self, seconds: float) -> Failure:
        """The time for connecting passed before calls could be made."""
        remedy = "find out why it is slow, or raise connect_timeout="
        return self.unavailable(f"did not answer within {seconds:g} s", remedy)

    def gone(self) -> Failure:
        """The connection was lost before the call was made."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} was lost", self.restart, repeatable=True)

    def broken(self) -> Failure:
        """The connection was lost during a call."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} ended in the middle of a call", self.restart)

    def closed(self) -> Failure:
        """The connection was closed by its owner."""
        remedy = "use it before you close it, or open it again"
        return Failure(AgentClosed, f"the connection to {self.name} is closed", remedy)

    def in_another_loop(self) -> Failure:
        """The connection belongs to an event loop that still runs."""
        remedy = "close it there first, or make a store for each loop"
        return Failure(AgentClosed, f"the connection to {self.name} is in use in another event loop", remedy)

    # --- one call ---------------------------------------------------------------------------------------------------

    def late(self, seconds: float) -> Failure:
        """A call got no answer within the time limit."""
        return self.unavailable(f"did not answer within {seconds:g} s", self.LONGER)

    def of_status(self, code: int, retry_after: object) -> Failure:
        """Interpret an HTTP status that reports an error. `transports` turns it into an MCP error."""
        match code:
            case 401 | 403:
                return self.forbidden()
            case 302:
                what = "redirects to another address, and the token is not sent there"
                return self.invalid(what, "configure the address that it redirects to")
            case 429 | 503:
                when = f"in {retry_after} s" if isinstance(retry_after, int) else "later"
                return self.unavailable(f"takes no calls at present (HTTP {code})", f"try again {when}")
            case _:
                return self.unavailable(f"failed (HTTP {code})", _REPORTED)

    def of_code(self, code: int) -> Failure:
        """An MCP error that the host answered. Its code is not interpreted."""
        return self.unavailable(f"failed (MCP error {code})", _REPORTED)

    def oversized(self) -> Failure:
        """A message was longer than the limit."""
        return self.invalid(f"answered with more than {LONGEST_ANSWER >> 20} MiB", self.SHORTER)

    def garbled(self, kind: str = "") -> Failure:
        """A message was not an MCP message. `kind` adds details."""
        return self.invalid(f"answered something that is not an MCP message{kind}")

    def stray(self) -> Failure:
        """The host wrote lines that are not messages, and no answer."""
        what = "wrote something that is not an MCP message, and no answer"
        return self.invalid(what, "make it write only MCP messages to its standard output")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(16):  # a chain of causes can have a cycle
        if error is None:
            return
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        error = inner or error.__context__


__all__ = ["Failure", "Failures"]
