"""What a paused turn waits for, and what a person may answer: values only (T4). `resume()` takes the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from .clock import utc_text
from .events import PauseKind, Risk

UnattendedMode = Literal["refuse", "pause"]
"""What an unattended turn does where a person would be asked: refuse the call, or pause and notify."""


@dataclass(frozen=True, slots=True)
class Approve:
    """The call may be made.

    Attributes:
        arguments: Other arguments than it asked for; they are validated, and the policy is asked, again.
        always: Whether more calls of this function by this caller may be made in this turn without asking, up to the
            limits of `Policy`: `"same"`, or True, for calls with equal arguments, `"any"` for calls with any arguments.
            It ends when the function's description changes. A call that is `destructive` is always asked for.
        hash: The pause's `hash` that was seen; left out, whatever waits is meant.
    """

    arguments: Mapping[str, Any] | None = None
    always: bool | Literal["same", "any"] = False
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
        result: What the function would have returned, as JSON; it fits the schema of the pause.
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
        id: What `resume()` takes the answer by. It fits a URL path segment and needs no quoting in a shell.
        kind: `approval` of a call, a `question` of a function, or an effect of which it is `uncertain` whether it
            happened.
        function: The function that asks, or the one that wants to be called.
        arguments: The call's params; empty for a question.
        hash: Stands for function and arguments: what is approved is what runs.
        risk: The function's, for an approval.
        description: What the function says it does, for an approval; of an MCP tool, in the words of its server.
        reason: Why the gate asks, for an approval.
        caller: Who wants to make the call: a worker, a shape, a function, `converse` for the conversation, `code`
            for the host's own code.
        approvers: Globs over the accounts that may answer; empty is anybody.
        question: What is asked, for a question.
        options: What can be answered, where there is a choice.
        schema: The JSON Schema of the answer's value, of the arguments of an approval, or of the result in
            `Happened(result)`; None if there is none.
        problem: Why the last answer was not taken, where there was one.
        since: When it was asked.
        expires: When it answers itself with a failure; None is never.
        answered: Whether a person has answered already. The answer is kept, and the turn has not resumed since.
    """

    id: str
    kind: PauseKind
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    hash: str = ""
    risk: tuple[Risk, ...] = ()
    description: str = ""
    reason: str = ""
    caller: str = ""
    approvers: tuple[str, ...] = ()
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: Mapping[str, Any] | None = None
    problem: str | None = None
    since: datetime
    expires: datetime | None = None
    answered: bool = False

    def to_json(self) -> dict[str, Any]:
        """The pause as JSON, with the fields that the command line and the sidecar give."""
        return {
            "id": self.id,
            "kind": self.kind,
            "function": self.function,
            "arguments": dict(self.arguments),
            "hash": self.hash,
            "risk": list(self.risk),
            "description": self.description,
            "reason": self.reason,
            "caller": self.caller,
            "approvers": list(self.approvers),
            "question": self.question,
            "options": None if self.options is None else list(self.options),
            "schema": None if self.schema is None else dict(self.schema),
            "problem": self.problem,
            "since": utc_text(self.since),
            "expires": None if self.expires is None else utc_text(self.expires),
            "answered": self.answered,
        }


def pause_id_of(call_id: str) -> str:
    """The id of a call's pause: its path id, percent-encoded with `-` as the escape character.

    A path id has slashes and colons, which a URL path segment and a shell would need quoted.
    """
    return quote(call_id, safe="").replace("-", "%2D").replace("~", "%7E").replace("%", "-")


def call_id_of(pause_id: str) -> str:
    """The path id of the call that a pause belongs to.

    Args:
        pause_id: The pause's id. Version 0.1.0 used the path id itself, which is returned unchanged.
    """
    return pause_id if "/" in pause_id else unquote(pause_id.replace("-", "%"))


def current_pause_id(pause_id: str) -> str:
    """A pause's id in its present form, where it may be given in the form of version 0.1.0."""
    return pause_id_of(pause_id) if "/" in pause_id else pause_id


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
    "call_id_of",
    "current_pause_id",
    "may_answer",
    "may_be_always",
    "pause_id_of",
]
