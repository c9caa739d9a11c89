"""Types that the parts of the sidecar share: the caller of a call, and its refusal.

`calls` makes a `Caller` from a grant and the arguments. `people` decides what a caller can do with a turn. `pauses`
converts answers and pauses to JSON and back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

ANY: Final = "*"
"""The entry in a list of ids that means every id."""

OwnCode = Literal["forbidden", "too_many_turns", "draining", "reader_behind", "internal"]
"""The codes that the sidecar adds to those of `core.errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The workspace and account of a call, after its token was checked.

    Attributes:
        workspace: The workspace. The token reaches it.
        account: The account. The token can speak for it. None means a call without an account.
        operator: Whether the token can resume, answer and cancel turns of other accounts.
        accounts: The accounts that the token can speak for; `*` among them means every account.
    """

    workspace: str
    account: str | None = None
    operator: bool = False
    accounts: Collection[str] = ()

    def may_speak_for(self, account: str) -> bool:
        """Whether the token can speak for an account."""
        return reaches(account, self.accounts)


class Refused(Exception):
    """The sidecar itself refuses a call.

    Args:
        code: The code for programs.
        problem: What is wrong, without any value that the caller sent.
        remedy: What the reader can do about it.
        turn_id: The turn that the error is about, if there is one.
    """

    def __init__(self, code: OwnCode, problem: str, *, remedy: str, turn_id: str | None = None) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.code: OwnCode = code
        self.problem = problem
        self.remedy = remedy
        self.turn_id = turn_id

    @property
    def retryable(self) -> bool:
        """Whether the same call can succeed later without a change."""
        return self.code in ("too_many_turns", "draining", "reader_behind")


def reaches(given: str, ids: Collection[str]) -> bool:
    """Whether a token with these ids reaches the id."""
    return given in ids or ANY in ids


def forbidden(what: str) -> Refused:
    """Return the refusal for a thing that a token does not reach. It does not reveal whether the thing exists.

    Args:
        what: The kind of thing, as the contract names it: `workspace`, `account`, `thread`, `turn`.
    """
    return Refused(
        "forbidden",
        f"the token does not reach this {what}",
        remedy="name another one, or use a token that reaches it",
    )


__all__ = ["ANY", "Caller", "OwnCode", "Refused", "forbidden", "reaches"]
