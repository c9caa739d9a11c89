"""What went wrong with a role host, as values: each caller that it concerns gets a fresh error of its own.

No text here comes from the host: it might be a role, or somebody else's secret. The library's errors are told apart by
their types and numbers and then dropped.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..core.errors import (
    AgentClosed,
    HostForbidden,
    HostUnavailable,
    RoleSourceInvalid,
    WorldAgentError,
)
from ._hosts import LONGEST_ANSWER, Host, StdioHost

SESSION_GONE: Final = 404
"""The code of the error that says that a host no longer knows the session, and did nothing about the call."""

MADE_HERE: Final = "made here"
"""The text of an error of MCP that no host answered, such as one of HTTP; what a host answers comes without text."""

CONTRACT: Final = "let it answer as the contract of role hosts says"
LONGER: Final = "see what keeps it, or give it longer by timeout= or the setting role_host_timeout"
_REPORTED: Final = "see what the host itself reports, then try again"
SHORTER: Final = "let it answer with roles and no more"
TOKEN: Final = "give a token that it accepts for this scope"


def named(label: str) -> str:
    """What the texts call a host; `tools` says it otherwise."""
    return f"role host {label!r}"


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
        return self.kind(self.problem, remedy=self.remedy)


def unreachable(label: str, why: str, remedy: str = "start it, or correct how it is reached") -> Failure:
    return Failure(HostUnavailable, f"{named(label)} could not be reached ({why})", remedy)


def unopened(label: str, error: BaseException) -> Failure:
    """What stands in the way of a connection, by the errors of the system that led to `error`."""
    causes = list(_chain(error))
    for cause in causes:
        match cause:
            case ssl.SSLError():
                remedy = "give it a certificate that this machine trusts, or correct its address"
                return unreachable(label, "no TLS connection that can be trusted", remedy)
            case socket.gaierror():
                return unreachable(label, "its name is not known")
            case ConnectionRefusedError():
                return unreachable(label, "nothing listens there")
            case FileNotFoundError() | NotADirectoryError():
                return unreachable(label, "there is no such program or folder")
            case PermissionError():
                return unreachable(label, "it is not a program that may be run")
            case OSError() if cause.errno == errno.ENOEXEC:
                return unreachable(label, "it is not a program that this machine can run")
            case _:
                pass
    return unreachable(label, type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(16):  # of errors that led to each other
        if error is None:
            return
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        error = inner or error.__context__


def late(host: Host, seconds: float | None = None) -> Failure:
    return _no_answer(host.label, host.timeout if seconds is None else seconds, LONGER)


def late_connecting(host: Host) -> Failure:
    return _no_answer(host.label, host.connect_timeout, "see what keeps it, or give it longer by connect_timeout=")


def _no_answer(label: str, seconds: float, remedy: str) -> Failure:
    return Failure(HostUnavailable, f"{named(label)} did not answer within {seconds:g} s", remedy)


def broken(host: Host) -> Failure:
    return Failure(
        HostUnavailable, f"the connection to {named(host.label)} ended in the middle of a call", _start(host)
    )


def gone(host: Host) -> Failure:
    """The connection was lost before the call was made."""
    return Failure(HostUnavailable, f"the connection to {named(host.label)} was lost", _start(host), repeatable=True)


def silent(host: Host) -> Failure:
    """A program is ended because of calls before this one."""
    return Failure(HostUnavailable, f"{named(host.label)} left two calls without an answer", _start(host))


def deaf(host: Host) -> Failure:
    return Failure(HostUnavailable, f"{named(host.label)} does not read what is sent to it", _start(host))


def _start(host: Host) -> str:
    return "try again: the next call starts it again" if isinstance(host, StdioHost) else "start the host again"


def failed(label: str, code: int, data: object = None) -> Failure:
    """A status of HTTP that says no; `_transports` makes an error of MCP of it."""
    match code:
        case 401 | 403:
            return forbidden(label)
        case 302:
            return invalid(
                label,
                "sends its callers to another address, and no token goes there",
                "give the address it is really at",
            )
        case 429 | 503:
            when = f"in {data} s" if isinstance(data, int) else "later"
            return Failure(
                HostUnavailable, f"{named(label)} takes no calls at present (HTTP {code})", f"try again {when}"
            )
        case _:
            return Failure(HostUnavailable, f"{named(label)} failed (HTTP {code})", _REPORTED)


def errored(label: str, code: int) -> Failure:
    """An error of MCP that the host answered, whatever its code means elsewhere."""
    return Failure(HostUnavailable, f"{named(label)} failed (MCP error {code})", _REPORTED)


def oversized(label: str) -> Failure:
    return invalid(label, f"answered with more than {LONGEST_ANSWER >> 20} MiB", SHORTER)


def garbled(label: str) -> Failure:
    return invalid(label, "answered something that is no MCP message")


def stray(label: str) -> Failure:
    return invalid(
        label,
        "wrote something that is no MCP message, and no answer",
        "let it write nothing but MCP messages to its standard output",
    )


def crowded(label: str, waiting: int) -> Failure:
    return Failure(
        HostUnavailable,
        f"{named(label)} has {waiting} calls waiting",
        "try again later, or find out why the host is slow",
    )


def forbidden(label: str) -> Failure:
    return Failure(HostForbidden, f"{named(label)} refused access", TOKEN)


def invalid(label: str, why: str, remedy: str = CONTRACT) -> Failure:
    return Failure(RoleSourceInvalid, f"{named(label)} {why}", remedy)


def foreign(label: str) -> Failure:
    return invalid(
        label, "speaks no protocol revision of MCP that this package knows", "use one that speaks 2025-11-25 or newer"
    )


def elsewhere(label: str) -> Failure:
    return Failure(
        AgentClosed,
        f"the connection to {named(label)} is in use in another event loop",
        "close it there first, or make a store for each loop",
    )


def closed(label: str) -> Failure:
    return Failure(
        AgentClosed, f"the connection to {named(label)} is closed", "use it before it is closed, or open it again"
    )
