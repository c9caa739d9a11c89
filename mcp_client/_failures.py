"""What went wrong with a role host, as values: each caller that it concerns gets a fresh error of its own.

No text here comes from the host: it might be a role, or somebody else's secret. The library's errors are told apart by
their types and numbers and then dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..core.errors import (
    AgentClosed,
    HostForbidden,
    HostUnavailable,
    RoleSourceInvalid,
    WorldAgentError,
)

_CONTRACT: Final = "let it answer as the contract of role hosts says"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that was not raised yet.

    Attributes:
        kind: Its type.
        problem: Its text.
        remedy: What can be done.
        untouched: Whether the host surely did nothing about the call, so that it can be made again.
    """

    kind: type[WorldAgentError]
    problem: str
    remedy: str
    untouched: bool = False

    def error(self) -> WorldAgentError:
        return self.kind(self.problem, remedy=self.remedy)


def unreachable(label: str, why: str) -> Failure:
    return Failure(
        HostUnavailable, f"role host {label!r} could not be reached ({why})", "start it, or correct how it is reached"
    )


def late(label: str, seconds: float) -> Failure:
    return Failure(
        HostUnavailable,
        f"role host {label!r} did not answer within {seconds:g} s",
        "see what keeps it, or give the host a longer timeout",
    )


def broken(label: str) -> Failure:
    return Failure(
        HostUnavailable, f"the connection to role host {label!r} ended in the middle of a call", "start the host again"
    )


def failed(label: str, code: int) -> Failure:
    return Failure(
        HostUnavailable,
        f"role host {label!r} failed (MCP error {code})",
        "see what the host itself reports, then try again",
    )


def crowded(label: str, waiting: int) -> Failure:
    return Failure(
        HostUnavailable,
        f"role host {label!r} has {waiting} calls waiting",
        "try again later, or find out why the host is slow",
    )


def gone(label: str) -> Failure:
    """The connection was lost before the call was made."""
    return Failure(
        HostUnavailable, f"the connection to role host {label!r} was lost", "start the host again", untouched=True
    )


def forbidden(label: str) -> Failure:
    return Failure(HostForbidden, f"role host {label!r} refused access", "give a token that it accepts for this scope")


def invalid(label: str, why: str, remedy: str = _CONTRACT) -> Failure:
    return Failure(RoleSourceInvalid, f"role host {label!r} {why}", remedy)


def foreign(label: str) -> Failure:
    return invalid(
        label, "speaks no protocol revision of MCP that this package knows", "use one that speaks 2025-11-25 or newer"
    )


def closed(label: str) -> Failure:
    return Failure(
        AgentClosed, f"the connection to role host {label!r} is closed", "use it before it is closed, or open it again"
    )
