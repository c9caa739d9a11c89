"""What went wrong with a role host, as values: each caller that it concerns gets a fresh error of its own.

No text here comes from the host: it might be a role, or another party's secret. The library's errors are told apart by
their types and numbers and then dropped. `tools.failures` says the same of an MCP server.
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

_REPORTED = "see what the host itself reports, then try again"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that was not raised yet.

    Attributes:
        kind: Its type.
        problem: Its text.
        remedy: What can be done.
        repeatable: Whether the host surely did nothing about the call, so that it can be made again.
    """

    kind: type[WorldAgentError]
    problem: str
    remedy: str
    repeatable: bool = False

    def error(self) -> WorldAgentError:
        """A new error, to be raised once."""
        return self.kind(self.problem, remedy=self.remedy)


class Failures:
    """Makes the failures of one role host. A subclass gives the types and remedies for another kind of peer.

    Args:
        label: What errors call the host.
        program: Whether it is a program that the next call starts again.
    """

    PEER: ClassVar = "role host"
    UNAVAILABLE: ClassVar[type[WorldAgentError]] = HostUnavailable
    FORBIDDEN: ClassVar[type[WorldAgentError]] = HostForbidden
    INVALID: ClassVar[type[WorldAgentError]] = RoleSourceInvalid
    ANSWER: ClassVar = "let it answer as the contract of role hosts says"
    LONGER: ClassVar = "see what keeps it, or give it longer by timeout= or the setting role_host_timeout"
    SHORTER: ClassVar = "let it answer with roles and no more"
    TOKEN: ClassVar = "give a token that it accepts for this scope"

    def __init__(self, label: str, *, program: bool = False) -> None:
        self.name = f"{self.PEER} {label!r}"
        self.restart = "try again: the next call starts it again" if program else "start the host again"

    # --- in general -------------------------------------------------------------------------------------------------

    def unavailable(self, what: str, remedy: str) -> Failure:
        """The host cannot be used now; `what` follows its name."""
        return Failure(self.UNAVAILABLE, f"{self.name} {what}", remedy)

    def invalid(self, what: str, remedy: str = "") -> Failure:
        """The host does what no host of its kind may do; `what` follows its name."""
        return Failure(self.INVALID, f"{self.name} {what}", remedy or self.ANSWER)

    def forbidden(self) -> Failure:
        """The host did not accept the token."""
        return Failure(self.FORBIDDEN, f"{self.name} refused access", self.TOKEN)

    # --- the connection ---------------------------------------------------------------------------------------------

    def unreachable(self, why: str, remedy: str = "start it, or correct how it is reached") -> Failure:
        """No connection came about."""
        return self.unavailable(f"could not be reached ({why})", remedy)

    def unopened(self, error: BaseException) -> Failure:
        """What stands in the way of a connection, by the errors of the system that led to `error`."""
        for cause in _chain(error):
            match cause:
                case ssl.SSLError():
                    remedy = "give it a certificate that this machine trusts, or correct its address"
                    return self.unreachable("no TLS connection that can be trusted", remedy)
                case socket.gaierror():
                    return self.unreachable("its name is not known")
                case ConnectionRefusedError():
                    return self.unreachable("nothing listens there")
                case FileNotFoundError() | NotADirectoryError():
                    return self.unreachable("there is no such program or folder")
                case PermissionError():
                    return self.unreachable("it is not a program that may be run")
                case OSError() if cause.errno == errno.ENOEXEC:
                    return self.unreachable("it is not a program that this machine can run")
                case _:
                    pass
        return self.unreachable(type(error).__name__)

    def late_connecting(self, seconds: float) -> Failure:
        """No call could be made within the time for connecting."""
        remedy = "see what keeps it, or give it longer by connect_timeout="
        return self.unavailable(f"did not answer within {seconds:g} s", remedy)

    def gone(self) -> Failure:
        """The connection was lost before the call was made."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} was lost", self.restart, repeatable=True)

    def broken(self) -> Failure:
        """The connection was lost while a call was under way."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} ended in the middle of a call", self.restart)

    def closed(self) -> Failure:
        """The connection was closed by its owner."""
        remedy = "use it before it is closed, or open it again"
        return Failure(AgentClosed, f"the connection to {self.name} is closed", remedy)

    def in_another_loop(self) -> Failure:
        """The connection belongs to an event loop that still runs."""
        remedy = "close it there first, or make a store for each loop"
        return Failure(AgentClosed, f"the connection to {self.name} is in use in another event loop", remedy)

    # --- one call ---------------------------------------------------------------------------------------------------

    def late(self, seconds: float) -> Failure:
        """A call had no answer in time."""
        return self.unavailable(f"did not answer within {seconds:g} s", self.LONGER)

    def of_status(self, code: int, retry_after: object) -> Failure:
        """A status of HTTP that says no; `transports` makes an error of MCP of it."""
        match code:
            case 401 | 403:
                return self.forbidden()
            case 302:
                what = "sends its callers to another address, and no token goes there"
                return self.invalid(what, "give the address it is really at")
            case 429 | 503:
                when = f"in {retry_after} s" if isinstance(retry_after, int) else "later"
                return self.unavailable(f"takes no calls at present (HTTP {code})", f"try again {when}")
            case _:
                return self.unavailable(f"failed (HTTP {code})", _REPORTED)

    def of_code(self, code: int) -> Failure:
        """An error of MCP that the host answered, whatever its code means elsewhere."""
        return self.unavailable(f"failed (MCP error {code})", _REPORTED)

    def oversized(self) -> Failure:
        """A message was longer than is read."""
        return self.invalid(f"answered with more than {LONGEST_ANSWER >> 20} MiB", self.SHORTER)

    def garbled(self, kind: str = "") -> Failure:
        """A message was none of MCP; `kind` says more."""
        return self.invalid(f"answered something that is no MCP message{kind}")

    def stray(self) -> Failure:
        """There were lines that are no messages, and no answer."""
        what = "wrote something that is no MCP message, and no answer"
        return self.invalid(what, "let it write nothing but MCP messages to its standard output")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(16):  # of errors that led to each other
        if error is None:
            return
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        error = inner or error.__context__


__all__ = ["Failure", "Failures"]
