"""Pauses, and the answers to them, as values (T4). You pass the answers to `resume()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from pydantic_core import to_jsonable_python

from .events import PauseKind, Risk

UnattendedMode = Literal["refuse", "pause"]
"""What an unattended turn does when a call requires approval: refuse the call, or pause and notify."""


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve the call.

    Attributes:
        arguments: Arguments to use instead of the requested ones. They are validated and checked by the policy again.
        always: Whether to approve more calls of this function by this caller in this turn, up to the limits of
            `Policy`: `"same"` or True for calls with equal arguments, which of a guarded model must also come from the
            same origins; `"any"` for calls with any arguments. The approval ends when the function's description
            changes. A `destructive` call always requires a new approval.
        hash: The `hash` of the pause that the person saw; None approves whatever call waits.
    """

    arguments: Mapping[str, Any] | None = None
    always: bool | Literal["same", "any"] = False
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject the call; it fails with `CallRefused`.

    Attributes:
        reason: The reason. The caller receives it.
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
    """The interrupted effect did happen, so the call is not made again.

    Attributes:
        result: What the function would have returned, as JSON; it must match the schema of the pause.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotHappened:
    """The interrupted effect did not happen; the call fails with `EffectLost`."""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Make the interrupted call again."""


PersonAnswer = Approve | Reject | Answer | Happened | NotHappened | RunAgain


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What a turn waits for.

    Attributes:
        id: The key of its answer in `resume()`. It fits a URL path segment and needs no quoting in a shell.
        kind: `approval` of a call, a `question` of a function, `uncertain` for an effect that may have happened, or
            `reply` for a wait for the reply to a message, which no person can answer.
        function: The function that asks the question, or that is to be called.
        arguments: The call's params; empty for a question. For a reply, the `message_id` that it is expected to.
        hash: A digest of function and arguments, so that the approved call is the one that runs.
        risk: The function's risk, for an approval.
        description: The function's description, for an approval; for an MCP tool, in the words of its server.
        reason: Why the call requires approval.
        caller: The caller: a worker, a shape, a function, `converse` for the conversation, or `code` for the host's
            code.
        approvers: Globs over the accounts that can answer; empty means anyone can.
        login: The name of the MCP server that the question asks the turn's account to log in to; empty for others.
        labels: Where the arguments of an approval come from, by their dotted paths: the `origins`, such as
            `search_mail.*`, and the `form`, which is `words`, `span`, `bounded` or `value`; of some also `chosen`, what
            chose the value, `readers`, who may see it, and `through`, whether a `reader` or a `program` made it. What
            has no label is the person's, or of a model that has read nothing untrusted. The place in the sorted object
            stands for a key that the function does not declare. If values are many, one label is for a whole argument,
            or with the empty path for the call.
        question: The text of a question.
        options: The possible answers, if the question has a fixed choice.
        schema: The JSON Schema of the answer's value, of the arguments of an approval, or of the result in
            `Happened(result)`; None if there is none.
        problem: Why the last answer was not accepted; None if no answer was refused.
        since: When the pause was opened.
        expires: When the call fails if no answer has come; None means never.
        answered: Whether a person has answered already. The answer is stored, and the turn has not resumed since.
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
    login: str = ""
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: Mapping[str, Any] | None = None
    problem: str | None = None
    since: datetime
    expires: datetime | None = None
    answered: bool = False

    def to_json(self) -> dict[str, Any]:
        """The pause as JSON, as the command line and the sidecar use it; `labels` is left out if it is empty."""
        found: dict[str, Any] = to_jsonable_python(self)
        if not self.labels:
            del found["labels"]
        return found


def pause_id_of(call_id: str) -> str:
    """The id of a call's pause: its path id, percent-encoded with `-` as the escape character.

    A path id has slashes and colons, which need quoting in a URL path segment and in a shell.
    """
    return quote(call_id, safe="").replace("-", "%2D").replace("~", "%7E").replace("%", "-")


def call_id_of(pause_id: str) -> str:
    """The path id of the call that a pause belongs to.

    Args:
        pause_id: The pause's id. Version 0.1.0 used the path id itself, which is returned unchanged.
    """
    return pause_id if "/" in pause_id else unquote(pause_id.replace("-", "%"))


def current_pause_id(pause_id: str) -> str:
    """Convert a pause's id to the current form; it may have the form of version 0.1.0."""
    return pause_id_of(pause_id) if "/" in pause_id else pause_id


MAX_WAIT_SECONDS: Final = 10 * 366 * 86_400.0
"""The longest time in seconds that a turn can wait for an answer: ten years."""


def may_answer(account: str | None, approvers: Sequence[str]) -> bool:
    """Whether an account can answer a pause with these approvers.

    Args:
        account: The account that answers; None if it is not known.
        approvers: Globs over accounts; empty means anyone can answer.
    """
    return not approvers or (account is not None and any(fnmatchcase(account, glob) for glob in approvers))


def may_be_always(pause: Pause) -> bool:
    """Whether the approval can cover later calls too. Each destructive call requires its own approval."""
    return "destructive" not in pause.risk
