"""Makes pauses of recorded calls, and decisions of answers. `core.pauses` defines the values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...core.errors import AnswerInvalid, FunctionInvalid, NotAnApprover, StorageInvalid
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
from .records import CallRecord


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
        case "approval", Reject(reason) if isinstance(reason, str):
            return {"kind": "reject", "reason": reason, **by}
        case "question", Answer(value):
            return {"kind": "answer", "value": _validated_answer(pause, _with_defaults(pause, value))}
        case "question", Approve() | Reject() | Happened() | NotHappened() | RunAgain():
            pass
        case "question", value:
            return {"kind": "answer", "value": _validated_answer(pause, _with_defaults(pause, value))}
        case "uncertain", Happened(result):
            return {"kind": "happened", "value": _validated_answer(pause, result)}
        case "uncertain", NotHappened():
            return {"kind": "lost"}
        case "uncertain", RunAgain():
            return {"kind": "again"}
        case _:
            pass
    raise AnswerInvalid(
        f"{type(answer).__name__} cannot answer the pause {pause.id!r}, which is of kind {pause.kind!r}",
        remedy=f"answer with {_KNOWN[pause.kind]}",
    )


def _approval_parts(pause: Pause, answer: Approve) -> dict[str, Any]:
    """Return the parts of an approval that the journal keeps: its `always` and changed arguments."""
    if answer.hash is not None and answer.hash != pause.hash:
        raise AnswerInvalid(
            f"the approval of the pause {pause.id!r} was given for other arguments",
            remedy="look at the pause again, and answer with its hash",
        )
    if answer.always and not may_be_always(pause):
        raise AnswerInvalid(
            f"{pause.function!r} is destructive, so each call of it must be approved separately",
            remedy="approve only this call, without `always`",
        )
    if answer.always not in (False, True, "same", "any"):
        raise AnswerInvalid(
            f"the approval of the pause {pause.id!r} has an `always` that is neither 'same' nor 'any'",
            remedy="use 'same' for calls with equal arguments, 'any' for calls with any arguments, or omit it",
        )
    said: dict[str, Any] = {"always": "any" if answer.always == "any" else "same"} if answer.always else {}
    if answer.arguments is not None and not isinstance(answer.arguments, Mapping):
        raise AnswerInvalid(
            f"the arguments for the pause {pause.id!r} must be a mapping, got {type(answer.arguments).__name__!r}",
            remedy="pass the function's params by name, or omit them",
        )
    if answer.arguments is not None:
        said["arguments"] = _validated_answer(pause, dict(answer.arguments))
    return said


_KNOWN: Mapping[str, str] = {
    "approval": "Approve() or Reject(reason)",
    "question": "Answer(value), or the value",
    "uncertain": "Happened(result), NotHappened() or RunAgain()",
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
        raise AnswerInvalid(
            f"the answer to the pause {pause.id!r} must be one of its options",
            remedy=f"use one of {list(pause.options)}",
        )
    problems_found = [] if pause.schema is None else _validation_errors(pause, pause.schema, value)
    if problems_found:
        raise AnswerInvalid(
            f"the answer to the pause {pause.id!r} does not fit its schema ({'; '.join(problems_found[:5])})",
            remedy="answer with a value that fits the schema of the pause",
        )
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
    raise AnswerInvalid(f"the answer to the pause {pause.id!r} is not JSON", remedy="answer with a JSON value")
