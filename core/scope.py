"""The five tiers of roles, and the scope that gives each tier its id. This module holds no role content."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .errors import InvalidArgument, UnknownTier
from .validation import is_line

_ID_LIMIT = 200

ROOT: Final = "root"
"""The id of the World Agent among the members of a workspace (C2). No member can have it."""


MEMBER_ACCOUNT: Final = "member:"
"""Begins the account of a member of a workspace. The account of a person cannot begin so."""


def account_of(workspace: str, role_id: str) -> str:
    """The account of a member: its threads, its memory, its usage and its stored role are under this id.

    It names the workspace, because the stored role of an account is the same in all workspaces, and two of them can
    have members with one id.
    """
    return f"{MEMBER_ACCOUNT}{workspace}/{role_id}"


def workspace_of(account: str) -> str | None:
    """The workspace of the member whose account this is; None for the account of a person."""
    if not account.startswith(MEMBER_ACCOUNT):
        return None
    return account.removeprefix(MEMBER_ACCOUNT).rpartition("/")[0]


def member_of(workspace: str, account: str | None) -> str | None:
    """The member of a workspace whose account this is; None for another account, and for none."""
    own = account_of(workspace, "")
    return account.removeprefix(own) if account is not None and account.startswith(own) else None


class Tier(StrEnum):
    """The five sources of a role, highest precedence first (R2)."""

    CALL = "call"
    THREAD = "thread"
    CHANNEL = "channel"
    WORKSPACE = "workspace"
    ACCOUNT = "account"

    @classmethod
    def parse(cls, value: str) -> Tier:
        """Return the tier called `value`.

        Raises:
            UnknownTier: No tier has this name.
        """
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(tier.value for tier in cls)
        raise UnknownTier(f"unknown tier {value!r}", remedy=f"use one of {known}")


STORED_TIERS: Final[tuple[Tier, ...]] = (Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL)
"""The tiers whose roles can be stored, in the order in which they are shown; never those of a call or thread (R9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The ids a call runs under.

    Attributes:
        workspace: The agent's workspace.
        account: The account that speaks; None if the call has no account.
        channel: The channel of the thread, or None.
        thread: The conversation; None for a call without one.
    """

    workspace: str
    account: str | None = None
    channel: str | None = None
    thread: str | None = None

    def __post_init__(self) -> None:
        check_id("workspace", self.workspace)
        for name in ("account", "channel", "thread"):
            value = getattr(self, name)
            if value is not None:
                check_id(name, value)

    def id_of(self, tier: Tier) -> str | None:
        """The id under which `tier` is looked up in this scope; None if the scope has none. The call tier has no id."""
        found: str | None = None if tier is Tier.CALL else getattr(self, tier.value)
        return found


def is_id(value: object) -> bool:
    """Whether `check_id` accepts a value."""
    return is_line(value, _ID_LIMIT)


def check_id(what: str, value: object) -> str:
    """Return `value` if it can be an id: 1 to 200 printable characters that encode as UTF-8.

    Raises:
        InvalidArgument: It cannot; the text names `what`.
    """
    if isinstance(value, str) and is_id(value):
        return value
    shown = repr(value) if not isinstance(value, str) or len(value) <= _ID_LIMIT else f"of {len(value)} characters"
    raise InvalidArgument(
        f"{what} {shown} is not an id", remedy=f"give {what} 1 to {_ID_LIMIT} printable characters, not only blanks"
    )
