"""Steps of the journal, the pauses of recorded calls, and the decisions that answers to them make."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

from ...core import canonical_json, digest
from ...core.errors import AnswerInvalid, FunctionInvalid, NotAnApprover, StorageInvalid, WorldAgentError
from ...core.events import PauseKind, Risk
from ...core.pauses import (
    Answer,
    Approve,
    Happened,
    NotHappened,
    Pause,
    Reject,
    RunAgain,
    may_answer,
    may_be_always,
    pause_id_of,
)
from ...core.validation import storable_json
from ..schema import Checker
from .records import CallKind, CallRecord


class Suspended(Enum):
    """The value of a call that waits for a person, or did not run because the turn is being stopped."""

    SUSPENDED = "suspended"


SUSPENDED: Final = Suspended.SUSPENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to a person, which must be answered before a step runs.

    Attributes:
        kind: An approval, a question, an interrupted effect (`uncertain`), or a wait for a `reply`.
        function: The name of the function, if the step has another name.
        question: The text of a question.
        options: The answers to choose from.
        schema: The JSON Schema of the answer.
        seconds: How long to wait for an answer; None waits for ever.
        risk: What the function does to the world, for an approval.
        description: The description of the function, for an approval.
        reason: Why approval is required.
        caller: The caller of the function.
        approvers: Globs over the accounts that can answer; empty allows any account.
        login: The name of the MCP server that the question asks the turn's account to log in to.
        labels: Where the arguments come from, by their dotted paths; see `Pause.labels`.
    """

    kind: PauseKind
    function: str = ""
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: dict[str, Any] | None = None
    seconds: float | None = None
    risk: tuple[Risk, ...] = ()
    description: str = ""
    reason: str = ""
    caller: str = ""
    approvers: tuple[str, ...] = ()
    login: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)

    def outdated(self, asked: Mapping[str, Any], account: str | None) -> str:
        """Return why an approval of the earlier request is not valid for this one; empty if it is valid.

        Args:
            asked: The earlier request, as the journal keeps it.
            account: The account that approved it.
        """
        if not may_answer(account, self.approvers):
            return f"one of these accounts must now answer: {', '.join(self.approvers)}"
        more = [risk for risk in self.risk if risk not in asked.get("risk", self.risk)]
        if more:
            return f"its risk now includes {' and '.join(more)}"
        # Versions up to 0.1.0 did not record the description.
        changed = asked.get("description", self.description) != self.description
        return "its description has changed since it was shown" if changed else ""

    def json(self, problem: str | None = None) -> str:
        """Return the request as JSON for the journal."""
        given = {"question": self.question, "options": self.options, "schema": self.schema, "problem": problem}
        asked = {
            "function": self.function,
            "risk": self.risk,
            "reason": self.reason,
            "caller": self.caller,
            "approvers": self.approvers,
            "login": self.login,
            "labels": self.labels,
        }
        return canonical_json(
            {"kind": self.kind}
            | ({"description": self.description} if self.kind == "approval" else {})
            | {name: value for name, value in given.items() if value is not None}
            | {name: value for name, value in asked.items() if value}
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """Ends a wait for a reply, as the answer in `thread.resume()`. Only host code can make one, and no wire has a form.

    Attributes:
        value: The reply, as JSON; the waiting call gets it.
        expired: Whether no reply will come: the waiting call fails with `PauseExpired`. A wait whose deadline is over
            needs no `Reply` for that.
    """

    value: Any = None
    expired: bool = False


async def _missing_body(_: Any) -> Any:
    raise AssertionError("a step must get its body before it runs")


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """Something that a body requests and the journal records: a call, a task, a model call, a question.

    The code that makes a step fills it in before it passes the step to a frame or a drive.

    Attributes:
        id: Its path id.
        parent: The path id of the call, task or turn that requests it.
        name: Its name.
        kind: Its kind.
        input: Its params as JSON.
        text: The same as canonical JSON, if the caller already has it.
        body: Runs the step; returns JSON, or `SUSPENDED`. It receives the recorded decision of the gate. For a question
            it receives the answer instead, and raises if the answer is not valid.
        role: A digest of its role; opaque here.
        ask: The request to a person that must be answered before.
        once: Whether it must not run twice.
        doubtful: Whether it may have had its effect already, in an earlier step whose end is unknown. If it must not
            run twice, a person says first whether it did.
        version: A digest of its declared params and result.
        gate: The decision of the gate, as JSON for the journal.
        by: What approved it, or requires approval; see `CallStarted.gate`.
        refusal: Why it is refused; the journal keeps it as the failure of the step.
        result_schema: Returns the JSON Schema of its result, for the person who decides about an interrupted effect.
        check: Validates arguments that a person changed; returns them as JSON, as they will be passed on.
        noted: Receives the decision of a person, or `refuse` if the request expired; returns the JSON that the journal
            keeps.
        labels: Where its arguments come from, by their dotted paths; those that are not named are the person's.
        told: The same for events, which name the person's as well.
        read: The marks of the places that its body has read.
        slot: Is held while it runs, to bound how many steps run concurrently; not held while it waits for a person.
        gathers: Whether a wait for replies ends with what its body returns also once its time is over.
    """

    id: str
    parent: str
    name: str
    kind: CallKind
    input: Any
    text: str | None = None
    role: str | None = None
    ask: Ask | None = None
    once: bool = False
    doubtful: bool = False
    version: str | None = None
    gate: str | None = None
    by: str = ""
    refusal: WorldAgentError | None = None
    result_schema: Callable[[], dict[str, Any]] | None = None
    check: Callable[[Any], Any] | None = None
    body: Callable[[Any], Awaitable[Any]] = _missing_body
    noted: Callable[[str, Mapping[str, Any]], str] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    read: Collection[str] = ()
    slot: AbstractAsyncContextManager[Any] | None = None
    gathers: bool = False

    def pause(self, since: datetime) -> Pause:
        """Return the step's pause, for an approver that can answer at once.

        Args:
            since: The time by the turn's clock.
        """
        assert self.ask is not None
        seconds = self.ask.seconds
        return Pause(
            id=self.id,
            kind=self.ask.kind,
            function=self.ask.function or self.name,
            arguments=json.loads(self.kept),  # a copy: a task reads its params from `input`
            hash=self.hash,
            risk=self.ask.risk,
            description=self.ask.description,
            reason=self.ask.reason,
            caller=self.ask.caller,
            approvers=self.ask.approvers,
            labels=self.ask.labels,
            schema=self.ask.schema,
            since=since,
            expires=None if seconds is None else since + timedelta(seconds=seconds),
        )

    @property
    def hash(self) -> str:
        """A digest of its input, by which a replay with another input is noticed."""
        return digest([self.kind, self.input], text=None if self.text is None else f'["{self.kind}",{self.text}]')

    @property
    def kept(self) -> str:
        """Its params as JSON text, as the journal keeps them."""
        return canonical_json(self.input) if self.text is None else self.text


def pause_of(record: CallRecord) -> Pause:
    """Return the pause of a recorded call that waits, or that was answered but not yet resumed."""
    ask: dict[str, Any] = json.loads(record.ask) if record.ask else {"kind": "approval"}
    return Pause(
        id=pause_id_of(record.id),
        kind=ask["kind"],
        function=ask.get("function", record.name),
        arguments={} if ask["kind"] == "question" else record.arguments,
        hash=record.hash,
        risk=tuple(ask.get("risk", ())),
        description=ask.get("description", ""),
        reason=ask.get("reason", ""),
        caller=ask.get("caller", ""),
        approvers=tuple(ask.get("approvers", ())),
        login=ask.get("login", ""),
        labels=ask.get("labels", {}),
        question=ask.get("question"),
        options=tuple(ask["options"]) if ask.get("options") else None,
        schema=ask.get("schema"),
        problem=ask.get("problem"),
        since=datetime.fromtimestamp(record.at, UTC),
        expires=None if record.expires is None else datetime.fromtimestamp(record.expires, UTC),
        answered=record.answered,
    )


def decision_of(pause: Pause, answer: object, account: str | None = None) -> dict[str, Any]:
    """Return the decision that the journal keeps of an answer.

    Args:
        pause: The pause that is answered.
        answer: A `PersonAnswer`; for a question, its value is enough.
        account: The account that answers.

    Raises:
        NotAnApprover: The account cannot answer this pause; the pause stays open.
        AnswerInvalid: The answer has the wrong kind or does not fit the schema; the pause stays open.
    """
    if not may_answer(account, pause.approvers):
        raise NotAnApprover(
            f"the account {account!r} is not allowed to answer the pause {pause.id!r}",
            remedy=f"let one of these accounts answer: {', '.join(pause.approvers)}",
        )
    by = {} if account is None else {"account": account}
    match pause.kind, answer:
        case "approval", Approve():
            return {"kind": "approve", **_approval_parts(pause, answer), **by}
        case "approval", Reject(reason):
            return {"kind": "reject", "reason": _validated_reason(pause, reason), **by}
        case "question", Approve() | Reject() | Happened() | NotHappened() | RunAgain() | Reply():
            pass
        case "question", given:
            value = given.value if isinstance(given, Answer) else given
            return {"kind": "answer", "value": _validated_answer(pause, _with_defaults(pause, value))}
        case "uncertain", Happened(result):
            return {"kind": "happened", "value": _validated_answer(pause, result)}
        case "uncertain", NotHappened():
            return {"kind": "lost"}
        case "uncertain", RunAgain():
            return {"kind": "again"}
        case "reply", Reply(value, expired):
            return {"kind": "expired"} if expired else {"kind": "reply", "value": _json(pause, value)}
        case _:
            pass
    raise AnswerInvalid(
        f"{type(answer).__name__} cannot answer the pause {pause.id!r}, which is of kind {pause.kind!r}",
        remedy=f"answer with {_KNOWN[pause.kind]}",
    )


def _approval_parts(pause: Pause, answer: Approve) -> dict[str, Any]:
    """Return the parts of an approval that the journal keeps: its `always` and changed arguments."""
    if answer.hash is not None and answer.hash != pause.hash:
        remedy = "look at the pause again, and answer with its hash"
        raise _invalid("approval of", pause, "was given for other arguments", remedy)
    if answer.always and not may_be_always(pause):
        raise AnswerInvalid(
            f"{pause.function!r} is destructive, so each call of it must be approved separately",
            remedy="approve only this call, without `always`",
        )
    if answer.always not in (False, True, "same", "any"):
        remedy = "use 'same' for calls with equal arguments, 'any' for calls with any arguments, or omit it"
        raise _invalid("approval of", pause, "has an `always` that is neither 'same' nor 'any'", remedy)
    said: dict[str, Any] = {"always": "any" if answer.always == "any" else "same"} if answer.always else {}
    if answer.arguments is not None and not isinstance(answer.arguments, Mapping):
        problem = f"must be a mapping, got {type(answer.arguments).__name__!r}"
        raise _invalid("arguments for", pause, problem, "pass the function's params by name, or omit them")
    if answer.arguments is not None:
        said["arguments"] = _validated_answer(pause, dict(answer.arguments))
    return said


def _validated_reason(pause: Pause, reason: object) -> Any:
    if not isinstance(reason, str):
        problem = f"must be a text, got {type(reason).__name__!r}"
        raise _invalid("reason in the answer to", pause, problem, "say why in words, or omit it")
    return _json(pause, reason)


_KNOWN: Mapping[str, str] = {
    "approval": "Approve() or Reject(reason)",
    "question": "Answer(value), or the value",
    "uncertain": "Happened(result), NotHappened() or RunAgain()",
    "reply": "nothing: it waits for a reply that the host's code brings",
}


def _with_defaults(pause: Pause, value: Any) -> Any:
    """Return the answer to a form, with the form's defaults for missing fields."""
    fields = (pause.schema or {}).get("properties")
    if not isinstance(value, Mapping) or not isinstance(fields, Mapping):
        return value
    defaults = {
        name: field["default"] for name, field in fields.items() if isinstance(field, Mapping) and "default" in field
    }
    return {**defaults, **value}


def _validated_answer(pause: Pause, value: Any) -> Any:
    value = _json(pause, value)
    if pause.options is not None and value not in pause.options:
        raise _invalid("answer to", pause, "must be one of its options", f"use one of {list(pause.options)}")
    problems_found = [] if pause.schema is None else _validation_errors(pause, pause.schema, value)
    if problems_found:
        problem = f"does not fit its schema ({'; '.join(problems_found[:5])})"
        raise _invalid("answer to", pause, problem, "answer with a value that fits the schema of the pause")
    return value


def _validation_errors(pause: Pause, schema: Mapping[str, Any], value: Any) -> list[str]:
    # The schema may come from a stranger: from the form of an MCP server, or from a row that we did not write.
    try:
        checker = Checker(f"the pause {pause.id!r}", schema)
    except FunctionInvalid as error:
        problem = error.problem
    else:
        return [str(each) for each in checker.problems(value)]
    raise StorageInvalid(
        f"{problem}, so the stored pause cannot be read",
        remedy="restore the database from a copy, or continue in another thread",
    )


def _json(pause: Pause, value: Any) -> Any:
    try:
        return json.loads(storable_json(value))
    except (TypeError, ValueError):
        pass
    raise _invalid("answer to", pause, "is not JSON", "answer with a JSON value")


def _invalid(what: str, pause: Pause, problem: str, remedy: str) -> AnswerInvalid:
    return AnswerInvalid(f"the {what} the pause {pause.id!r} {problem}", remedy=remedy)
