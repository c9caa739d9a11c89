"""What the parts of the sidecar know of each other: who calls, what a call is about, how it is refused. Values only.

`calls` makes a `Caller` of a grant and the arguments, `people` says what a caller may do with a turn, `pauses` turns
answers and pauses into JSON and back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

ANY: Final = "*"
"""Among ids that a token reaches: every one."""

OwnCode = Literal["forbidden", "too_many_turns", "draining", "reader_behind", "internal"]
"""The codes that the sidecar has beside those of `core.errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a call is made, after its token was looked at.

    Attributes:
        workspace: The workspace, which the token reaches.
        account: The account, which the token may speak for; None is nobody in particular.
        operator: Whether the token may touch turns of others.
        accounts: The accounts that the token may speak for; `*` among them is every one.
    """

    workspace: str
    account: str | None = None
    operator: bool = False
    accounts: Collection[str] = ()

    def may_speak_for(self, account: str) -> bool:
        """Whether the token may speak for an account."""
        return reaches(account, self.accounts)


class Refused(Exception):
    """A call that the sidecar itself answers with an error.

    Args:
        code: For programs.
        problem: What is wrong, without any value of the caller's.
        remedy: What the reader can do about it.
        turn_id: The turn that it is about, where there is one.
    """

    def __init__(self, code: OwnCode, problem: str, *, remedy: str, turn_id: str | None = None) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.code: OwnCode = code
        self.problem = problem
        self.remedy = remedy
        self.turn_id = turn_id

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without a change."""
        return self.code in ("too_many_turns", "draining", "reader_behind")


def reaches(given: str, ids: Collection[str]) -> bool:
    """Whether an id is one of those that a token reaches."""
    return given in ids or ANY in ids


def forbidden(what: str) -> Refused:
    """The refusal of what a token does not reach, whether or not it exists.

    Args:
        what: What it does not reach, in the contract's words: `workspace`, `account`, `thread`, `turn`.
    """
    return Refused(
        "forbidden",
        f"the token does not reach this {what}",
        remedy="name another one, or use a token that reaches it",
    )


__all__ = ["ANY", "Caller", "OwnCode", "Refused", "forbidden", "reaches"]
