"""What a paused turn waits for, and what a person may answer: values only (T4). `resume()` takes the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from .events import PauseKind, Risk

UnattendedMode = Literal["refuse", "pause"]
"""What an unattended turn does where a person would be asked: refuse the call, or pause and notify."""


@dataclass(frozen=True, slots=True)
class Approve:
    """The call may be made.

    Attributes:
        arguments: Other arguments than it asked for; they are validated, and the policy is asked, again.
        always: Whether more calls of this function by this caller may be made in this turn without asking, up to the
            limits of `Policy`. A call that is `destructive` is always asked for.
        hash: The pause's `hash` that was seen; left out, whatever waits is meant.
    """

    arguments: Mapping[str, Any] | None = None
    always: bool = False
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """The call may not be made; it fails with `CallRefused`.

    Attributes:
        reason: Why; whoever made the call is told.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Attributes:
        value: A JSON value: one of the options, a text, or the fields of the form.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Happened:
    """The effect that was under way when the process stopped did happen; it is not made again.

    Attributes:
        result: What the function would have returned, as JSON.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotHappened:
    """The effect that was under way when the process stopped did not happen; the call fails with `EffectLost`."""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The effect that was under way when the process stopped is to be made again."""


PersonAnswer = Approve | Reject | Answer | Happened | NotHappened | RunAgain


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What a turn waits for.

    Attributes:
        id: What `resume()` takes the answer by.
        kind: `approval` of a call, a `question` of a function, or an effect of which it is `uncertain` whether it
            happened.
        function: The function that asks, or the one that wants to be called.
        arguments: The call's params; empty for a question.
        hash: Stands for function and arguments: what is approved is what runs.
        risk: The function's, for an approval.
        reason: Why the gate asks, for an approval.
        caller: Who wants to make the call: a worker, a shape, a function, `converse` for the planner, `code` for the
            host's own code.
        approvers: Globs over the accounts that may answer; empty is anybody.
        question: What is asked, for a question.
        options: What can be answered, where there is a choice.
        schema: The JSON Schema of the answer's value, or of the arguments of an approval; None where there is neither.
        problem: Why the last answer was not taken, where there was one.
        since: When it was asked.
        expires: When it answers itself with a failure; None is never.
    """

    id: str
    kind: PauseKind
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    hash: str = ""
    risk: tuple[Risk, ...] = ()
    reason: str = ""
    caller: str = ""
    approvers: tuple[str, ...] = ()
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: Mapping[str, Any] | None = None
    problem: str | None = None
    since: datetime
    expires: datetime | None = None


LONGEST_WAIT: Final = 10 * 366 * 86_400.0
"""How many seconds an answer can be waited for: ten years."""


def may_answer(account: str | None, approvers: Sequence[str]) -> bool:
    """Whether an account may answer what these approvers are asked.

    Args:
        account: Who answers; None is nobody that is known.
        approvers: Globs over accounts; empty is anybody.
    """
    return not approvers or (account is not None and any(fnmatchcase(account, glob) for glob in approvers))


def may_be_always(pause: Pause) -> bool:
    """Whether more calls of the kind may be approved with this one; destructive ones are approved one by one."""
    return "destructive" not in pause.risk


__all__ = [
    "LONGEST_WAIT",
    "Answer",
    "Approve",
    "Happened",
    "NotHappened",
    "Pause",
    "PauseKind",
    "PersonAnswer",
    "Reject",
    "RunAgain",
    "UnattendedMode",
    "may_answer",
    "may_be_always",
]
