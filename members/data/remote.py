"""A member that runs elsewhere: the address of its agent card, and how to reach it (A22)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ...core.checks import check_number, check_text
from ...core.errors import InvalidArgument

REMOTE_MARK: Final = "a2a:"
"""Begins the mark of what a remote agent wrote."""

REMOTE_SOUL: Final = "A remote agent."
"""The soul of a remote member in a workspace's file that gives none: no model here reads it."""

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAgent:
    """Where a member runs that is an agent of A2A.

    Attributes:
        card: The address of its agent card, `https://` or `http://`, without a name or password. The agent must be
            served from the same host and port.
        token_variable: The environment variable with the bearer token for it; empty for none. The token itself is
            read when it is sent, and stored nowhere.
        timeout: Seconds that one call of it can take.

    Raises:
        InvalidArgument: A field is invalid.
    """

    card: str
    token_variable: str = ""
    timeout: float = 30.0

    def __post_init__(self) -> None:
        check_text("card", self.card, most=2000)
        if not _is_address(self.card):
            raise InvalidArgument(
                "`card` of a remote agent must be the http or https address of its agent card",
                remedy="pass one such as 'https://agents.example/.well-known/agent-card.json', without a password",
            )
        check_text("token_variable", self.token_variable, most=100, empty=True)
        if self.token_variable and not _VARIABLE.fullmatch(self.token_variable):
            raise InvalidArgument(
                "`token_variable` must be the name of an environment variable",
                remedy="put the token into a variable, and pass its name, such as 'REVIEWER_TOKEN'",
            )
        check_number("timeout", self.timeout, least=0.1)

    @property
    def host(self) -> str:
        """Its host, with the port if the address has one."""
        return urlsplit(self.card).netloc

    @property
    def mark(self) -> str:
        """The mark of what it writes."""
        return f"{REMOTE_MARK}{self.host}"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fits and "@" not in parts.netloc and len(parts.netloc) <= 190 and url.isprintable() and " " not in url


def exposes_token(agent: RemoteAgent) -> bool:
    """Whether the token for a remote agent is sent without encryption over a network."""
    parts = urlsplit(agent.card)
    return bool(agent.token_variable) and parts.scheme == "http" and parts.hostname not in _LOOPBACK
