"""Pauses out of recorded calls, and answers into them. The values themselves are `core.pauses`."""

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
from ...core.validation import kept_json
from ..schema import Checker
from .records import CallRecord


def pause_of(record: CallRecord) -> Pause:
    """The pause of a recorded call that waits, or that is answered and was not resumed since."""
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
    """What the journal keeps of an answer.

    Args:
        pause: What is answered.
        answer: A `PersonAnswer`; for a question its value alone will do.
        account: Who answers.

    Raises:
        NotAnApprover: Somebody else may answer; the pause stays open.
        AnswerInvalid: It is no answer to this pause, or does not fit its schema; the pause stays open.
    """
    if not may_answer(account, pause.approvers):
        raise NotAnApprover(
            f"the account {account!r} may not answer the pause {pause.id!r}",
            remedy=f"let one of these answer: {', '.join(pause.approvers)}",
        )
    by = {} if account is None else {"account": account}
    match pause.kind, answer:
        case "approval", Approve():
            return {"kind": "approve", **_leave(pause, answer), **by}
        case "approval", Reject(reason) if isinstance(reason, str):
            return {"kind": "reject", "reason": reason, **by}
        case "question", Answer(value):
            return {"kind": "answer", "value": _fitting(pause, _with_defaults(pause, value))}
        case "question", Approve() | Reject() | Happened() | NotHappened() | RunAgain():
            pass
        case "question", value:
            return {"kind": "answer", "value": _fitting(pause, _with_defaults(pause, value))}
        case "uncertain", Happened(result):
            return {"kind": "happened", "value": _fitting(pause, result)}
        case "uncertain", NotHappened():
            return {"kind": "lost"}
        case "uncertain", RunAgain():
            return {"kind": "again"}
        case _:
            pass
    raise AnswerInvalid(
        f"{type(answer).__name__} is no answer to the pause {pause.id!r}, which is of kind {pause.kind!r}",
        remedy=f"answer with {_KNOWN[pause.kind]}",
    )


def _leave(pause: Pause, answer: Approve) -> dict[str, Any]:
    """What an approval says beyond yes."""
    if answer.hash is not None and answer.hash != pause.hash:
        raise AnswerInvalid(
            f"the approval of the pause {pause.id!r} is for other arguments than wait there",
            remedy="look at the pause again, and answer with its hash",
        )
    if answer.always and not may_be_always(pause):
        raise AnswerInvalid(
            f"{pause.function!r} is destructive, so that each call of it is approved by itself",
            remedy="approve this one call, without `always`",
        )
    if answer.always not in (False, True, "same", "any"):
        raise AnswerInvalid(
            f"the approval of the pause {pause.id!r} has an `always` that is neither 'same' nor 'any'",
            remedy="use 'same' for calls with equal arguments, 'any' for calls with any arguments, or leave it out",
        )
    said: dict[str, Any] = {"always": "any" if answer.always == "any" else "same"} if answer.always else {}
    if answer.arguments is not None and not isinstance(answer.arguments, Mapping):
        raise AnswerInvalid(
            f"the arguments for the pause {pause.id!r} are of type {type(answer.arguments).__name__!r}",
            remedy="give the function's params by name, or leave them out",
        )
    if answer.arguments is not None:
        said["arguments"] = _fitting(pause, dict(answer.arguments))
    return said


_KNOWN: Mapping[str, str] = {
    "approval": "Approve() or Reject(reason)",
    "question": "Answer(value), or the value",
    "uncertain": "Happened(result), NotHappened() or RunAgain()",
}


def _with_defaults(pause: Pause, value: Any) -> Any:
    """The answer to a form, with the form's own defaults for the fields that it leaves out."""
    fields = (pause.schema or {}).get("properties")
    if not isinstance(value, Mapping) or not isinstance(fields, Mapping):
        return value
    defaults = {
        name: field["default"] for name, field in fields.items() if isinstance(field, Mapping) and "default" in field
    }
    return {**defaults, **value}


def _fitting(pause: Pause, value: Any) -> Any:
    value = _json(pause, value)
    if pause.options is not None and value not in pause.options:
        raise AnswerInvalid(
            f"the answer to the pause {pause.id!r} is none of its options", remedy=f"use one of {list(pause.options)}"
        )
    misfits = [] if pause.schema is None else _misfits(pause, pause.schema, value)
    if misfits:
        raise AnswerInvalid(
            f"the answer to the pause {pause.id!r} does not fit its schema ({'; '.join(misfits[:5])})",
            remedy="answer with what the pause's schema describes",
        )
    return value


def _misfits(pause: Pause, schema: Mapping[str, Any], value: Any) -> list[str]:
    # The schema may be a stranger's: an MCP server's form, or a row that somebody else wrote.
    try:
        checker = Checker(f"the pause {pause.id!r}", schema)
    except FunctionInvalid as error:
        problem = error.problem
    else:
        return [str(each) for each in checker.problems(value)]
    raise StorageInvalid(
        f"{problem}, so that it cannot be read",
        remedy="restore the database from a copy, or go on with another thread",
    )


def _json(pause: Pause, value: Any) -> Any:
    try:
        return json.loads(kept_json(value))
    except (TypeError, ValueError):
        pass
    raise AnswerInvalid(f"the answer to the pause {pause.id!r} is not JSON", remedy="answer with a JSON value")
