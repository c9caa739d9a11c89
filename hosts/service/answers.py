"""A person's answers as JSON: `{"approve": {}}` and so on. Errors about invalid answers quote no values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ...core.errors import AnswerInvalid
from ...core.pauses import Answer, Approve, Happened, NotHappened, Pause, PersonAnswer, Reject, RunAgain, may_be_always
from ...harness.journal import decision_of
from .pauses import is_late
from .validation import rule_of

Form = Literal["approve", "reject", "answer", "happened", "not_happened", "run_again"]

FORMS: Final[Mapping[str, tuple[Form, ...]]] = {
    "approval": ("approve", "reject"),
    "question": ("answer",),
    "uncertain": ("happened", "not_happened", "run_again"),
}
"""The forms of answer that each kind of pause accepts."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class _Approve(_Body):
    arguments: dict[str, Any] | None = None
    always: bool | Literal["same", "any"] = False
    hash: Annotated[str, Field(max_length=200)] | None = None

    def value(self) -> Approve:
        return Approve(self.arguments, always=self.always, hash=self.hash)


class _Reject(_Body):
    reason: Annotated[str, Field(max_length=10_000)] = ""

    def value(self) -> Reject:
        if not _is_unicode(self.reason):
            raise PydanticCustomError("no_unicode", "It has characters that UTF-8 cannot hold")
        return Reject(self.reason)


class _Happened(_Body):
    result: Any = None

    def value(self) -> Happened:
        return Happened(self.result)


class _NotHappened(_Body):
    def value(self) -> NotHappened:
        return NotHappened()


class _RunAgain(_Body):
    def value(self) -> RunAgain:
        return RunAgain()


_BODIES: Final[Mapping[str, type[_Approve | _Reject | _Happened | _NotHappened | _RunAgain]]] = {
    "approve": _Approve,
    "reject": _Reject,
    "happened": _Happened,
    "not_happened": _NotHappened,
    "run_again": _RunAgain,
}


def read_answers(given: Mapping[str, Any], pauses: Sequence[Pause], *, account: str | None) -> dict[str, PersonAnswer]:
    """Read the answers of a call.

    Args:
        given: Answers by pause id, as JSON.
        pauses: The open pauses. An answer to another pause is read too; the turn then reports whether it was already
            answered or does not exist.
        account: The account that answers.

    Raises:
        AnswerInvalid: An answer is invalid, or does not fit its pause. The text names the pause and the field.
        NotAnApprover: Only other accounts can answer.
    """
    known = {pause.id: pause for pause in pauses}
    answers: dict[str, PersonAnswer] = {}
    for pause_id, answer_json in given.items():
        pause = known.get(pause_id)
        name = "an answer to a pause that is not open" if pause is None else f"the answer to the pause {pause_id!r}"
        answers[pause_id] = answer = _read(answer_json, pause, name)
        if pause is not None:
            decision_of(pause, answer, account)  # raises before the turn is resumed
    return answers


def default_forms(pause: Pause) -> dict[str, Any]:
    """Return the forms that answer a pause. Each can be sent once its blanks are filled in."""
    match pause.kind:
        case "approval":
            return {"approve": {"hash": pause.hash}, "reject": {"reason": ""}}
        case "question":
            return {"answer": None}
        case "uncertain":
            return {"happened": {"result": None}, "not_happened": {}, "run_again": {}}


def pause_record(pause: Pause) -> dict[str, Any]:
    """Return a pause as JSON, with the answers that it accepts.

    Returns:
        All fields of the pause; `expired`, whether it no longer accepts an answer; `answers`, the forms of answer by
        their names, each of which can be sent once its blanks are filled in; `always`, whether `approve` can have it.
    """
    late = is_late(pause)
    always = {"always": may_be_always(pause)} if pause.kind == "approval" else {}
    return {**pause.to_json(), "expired": late, "answers": {} if late else default_forms(pause), **always}


def _read(answer_json: object, pause: Pause | None, name: str) -> PersonAnswer:
    fitting = [form for kind, forms in FORMS.items() if pause is None or kind == pause.kind for form in forms]
    remedy = f"give an object with one of {', '.join(fitting)}"
    if not isinstance(answer_json, Mapping) or len(answer_json) != 1:
        raise AnswerInvalid(f"{name} must be an object with exactly one form of answer", remedy=remedy)
    [(form, body)] = cast("Mapping[str, Any]", answer_json).items()
    if form not in fitting:
        raise AnswerInvalid(f"{name} has a form that is not valid here", remedy=remedy)
    if form == "answer":
        return Answer(body)
    model, problem = _BODIES[form], ""
    try:
        return model.model_validate(body).value()
    except ValidationError as failure:
        problem = _problem_of(model, form, failure)
    except PydanticCustomError as error:
        problem = f"{form}: {error.message_template}"
    fields = ", ".join(model.model_fields) or "no field"
    raise AnswerInvalid(f"{name} is invalid: {problem}", remedy=f"{form} is an object with {fields}")


def _problem_of(model: type[BaseModel], form: str, failure: ValidationError) -> str:
    """Say which fields are invalid and why. The text has no values, and only names of the contract."""
    problems: list[str] = []
    for item in failure.errors(include_input=False, include_url=False, include_context=False):
        field = str(item["loc"][0]) if item["loc"] else ""
        known = field in model.model_fields
        if known or not item["loc"]:
            problems.append(f"{form}{f'.{field}' if known else ''}: {rule_of(item)}")
        else:
            problems.append(f"{form} has an unknown field")
    return "; ".join(dict.fromkeys(problems))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _schema() -> dict[str, Any]:
    forms: list[dict[str, Any]] = []
    for form, about in _ABOUT.items():
        body = _body_schema(form)
        fields = {"type": "object", "properties": {form: body}, "required": [form], "additionalProperties": False}
        forms.append({"description": about, **fields})
    return {"type": "object", "additionalProperties": {"oneOf": forms}}


def _body_schema(form: str) -> dict[str, Any]:
    if form == "answer":
        return {}
    schema = _BODIES[form].model_json_schema()
    for part in (schema, *schema.get("properties", {}).values()):
        part.pop("title", None)
    return schema


_ABOUT: Final = {
    "approve": "the call may be made: with other arguments; always, for the rest of the turn (true or same: calls with "
    "equal arguments, any: calls with any arguments); only if its hash is still this",
    "reject": "the call must not be made",
    "answer": "the value that a question asks for",
    "happened": "the interrupted effect did happen, and gave this",
    "not_happened": "it did not happen",
    "run_again": "it is to be made again",
}

ANSWERS_SCHEMA: Final[dict[str, Any]] = _schema()
"""The JSON Schema of `resume`'s answers: by pause id, an object with one of the forms."""
