"""What a paused turn waits for, and what a person may answer: values only (T4). `resume()` takes the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

PauseKind = Literal["approval", "question", "uncertain"]


@dataclass(frozen=True, slots=True)
class Approve:
    """The call may be made."""


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
        question: What is asked, for a question.
        options: What can be answered, where there is a choice.
        schema: The JSON Schema of the answer's value; None where no value is answered.
        problem: Why the last answer was not taken, where there was one.
        since: When it was asked.
        expires: When it answers itself with a failure; None is never.
    """

    id: str
    kind: PauseKind
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: Mapping[str, Any] | None = None
    problem: str | None = None
    since: datetime
    expires: datetime | None = None


__all__ = [
    "Answer",
    "Approve",
    "Happened",
    "NotHappened",
    "Pause",
    "PauseKind",
    "PersonAnswer",
    "Reject",
    "RunAgain",
]
