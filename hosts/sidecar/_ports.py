"""What the parts of the sidecar know of each other: who calls, what a call is about, how it is refused. Values only.

`_calls` makes a `Caller` of a grant and the arguments, `_people` says what a caller may do with a turn, `_pauses` turns
answers and pauses into JSON and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OwnCode = Literal["forbidden", "too_many_turns", "draining", "reader_behind", "internal"]
"""The codes that the sidecar has beside those of `core.errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a call is made, after its token was looked at.

    Attributes:
        workspace: The workspace, which the token reaches.
        account: The account, which the token may speak for; None is nobody in particular.
        operator: Whether the token may touch turns of others.
    """

    workspace: str
    account: str | None = None
    operator: bool = False


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


def forbidden(what: str) -> Refused:
    """The refusal of what a token does not reach, whether or not it exists.

    Args:
        what: What it does not reach, in the contract's words: `workspace`, `account`, `thread`, `turn`.
    """
    return Refused("forbidden", f"the token does not reach this {what}", remedy="use a token that does")


__all__ = ["Caller", "OwnCode", "Refused", "forbidden"]
