"""Pauses as JSON and as forms, and the answers to both. Errors about invalid answers quote no values.

As JSON, an answer is an object such as `{"approve": {}}`. The schemas of forms are those of MCP's elicitation, which
web pages can draw too: one level of fields, each a string, a number, a boolean or an enum of strings. An answer that
needs more is requested as JSON in a string. Bounds that a form cannot express are checked when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, cast

from pydantic import Field, ValidationError

from ...core.errors import AnswerInvalid, InvalidArgument
from ...core.pauses import Answer, Approve, Happened, NotHappened, Pause, PersonAnswer, Reject, RunAgain, may_be_always
from ...harness.journal import decision_of
from . import pauses as forms
from .pauses import is_late, one_line, pause_lines, shortened, source_text
from .validation import Wire, describe_errors


class _Body(Wire):  # with the fields of the value that it becomes; a docstring would be part of the schema
    pass


class _Approve(_Body):
    arguments: dict[str, Any] | None = None
    always: bool | Literal["same", "any"] = False
    hash: Annotated[str, Field(max_length=200)] | None = None


class _Reject(_Body):
    reason: Annotated[str, Field(max_length=10_000)] = ""


class _Happened(_Body):
    result: Any = None


_BODIES: Final[Mapping[str, tuple[type[_Body], Callable[..., PersonAnswer]]]] = {
    "approve": (_Approve, Approve),
    "reject": (_Reject, Reject),
    "happened": (_Happened, Happened),
    "not_happened": (_Body, NotHappened),
    "run_again": (_Body, RunAgain),
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
        case "reply":
            return {}


def pause_record(pause: Pause) -> dict[str, Any]:
    """Return a pause as JSON, with the answers that it accepts.

    Returns:
        All fields of the pause; `expired`, whether it no longer accepts an answer; `answers`, the forms of answer by
        their names, each of which can be sent once its blanks are filled in; `always`, whether `approve` can have it;
        `sources`, what its `labels` say in words.
    """
    late = is_late(pause)
    always = {"always": may_be_always(pause)} if pause.kind == "approval" else {}
    sources = {"sources": {path: source_text([each]) for path, each in pause.labels.items()}} if pause.labels else {}
    return {**pause.to_json(), "expired": late, "answers": {} if late else default_forms(pause), **always, **sources}


def _read(answer_json: object, pause: Pause | None, name: str) -> PersonAnswer:
    fitting = _ABOUT if pause is None else default_forms(pause)
    if not fitting:
        raise _waits_for_reply(name)
    remedy = f"give an object with one of {', '.join(fitting)}"
    if not isinstance(answer_json, Mapping) or len(answer_json) != 1:
        raise AnswerInvalid(f"{name} must be an object with exactly one form of answer", remedy=remedy)
    [(form, body)] = cast("Mapping[str, Any]", answer_json).items()
    if form not in fitting:
        raise AnswerInvalid(f"{name} has a form that is not valid here", remedy=remedy)
    if form == "answer":
        return Answer(body)
    model, value = _BODIES[form]
    try:
        return value(**dict(model.model_validate(body)))
    except ValidationError as failure:
        problem = describe_errors(model, failure, within=form, unknown=f"{form} has an unknown field")
    fields = ", ".join(model.model_fields) or "no field"
    raise AnswerInvalid(f"{name} is invalid: {problem}", remedy=f"{form} is an object with {fields}")


def _waits_for_reply(what: str) -> AnswerInvalid:
    return AnswerInvalid(
        f"{what} is not accepted: the turn waits for the reply to a message, which the host's code brings",
        remedy="wait for the reply, or cancel the turn",
    )


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
    schema = _BODIES[form][0].model_json_schema()
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


# --- forms ------------------------------------------------------------------------------------------------------------

Schema = Mapping[str, Any]

_MESSAGE: Final = 16_000  # characters
_WORDS: Final = 300  # characters of a field's title or description
_REASON: Final = 2000
_BOUNDS: Final = ("minLength", "maxLength", "minimum", "maximum")
_FORMATS: Final = ("email", "uri", "date", "date-time")
_ANSWER, _JSON = "answer", "json"


def message_of(pause: Pause, problem: str = "") -> str:
    """Return the message that shows a pause to a person. It has no control characters, and long values are shortened.

    Args:
        pause: The pause.
        problem: Why their last answer was not accepted.
    """
    again = [f"the last answer was not accepted: {one_line(problem)}"] if problem else []
    return shortened("\n".join([*pause_lines(pause), *again]), _MESSAGE)


def form_of(pause: Pause) -> dict[str, Any]:
    """Return the `requestedSchema` for the answer to a pause."""
    match pause.kind:
        case "approval":
            return _approval(pause)
        case "uncertain":
            return _uncertain()
        case "question":
            return _question(pause)
        case "reply":
            raise _waits_for_reply(f"an answer to the pause {pause.id!r}")


def answer_of(pause: Pause, content: Mapping[str, Any]) -> PersonAnswer:
    """Read a person's answer from a submitted form.

    Args:
        pause: The pause.
        content: The fields of the form.

    Raises:
        AnswerInvalid: The answer does not match the form. The text names the field and has no value.
    """
    given = {name: value for name, value in content.items() if value is not None}
    asked = form_of(pause)
    for name in given:
        if name not in asked["properties"]:
            _refuse(pause, "it has a field that is not in the form")
    for name in asked.get("required", ()):
        if name not in given:
            _refuse(pause, f"the field {name!r} is missing")
    match pause.kind:
        case "approval":
            return _approval_answer(pause, asked, given)
        case "uncertain":
            return _uncertain_answer(pause, asked, given)
        case "question":
            return Answer(_value(pause, given))
        case "reply":
            raise AssertionError("a pause that waits for a reply has no form")


_ALWAYS: Final[Mapping[str, Literal["same", "any"]]] = {"approve_always": "same", "approve_always_any": "any"}


# --- a call that requires approval ------------------------------------------------------------------------------------


def _approval(pause: Pause) -> dict[str, Any]:
    decisions = ["approve", *(["approve_always", "approve_always_any"] if may_be_always(pause) else []), "reject"]
    about = "whether the call may be made" + (
        "; approve_always: also calls of it with equal arguments, for the rest of the turn; "
        "approve_always_any: with any arguments"
        if len(decisions) > 2
        else ""
    )
    return _object(
        {
            "decision": _choice("Decision", about, decisions),
            "reason": {"type": "string", "title": "Reason", "description": "why not", "maxLength": _REASON},
        },
        ["decision"],
    )


def _approval_answer(pause: Pause, asked: Schema, given: Mapping[str, Any]) -> Approve | Reject:
    decision = _chosen(pause, asked, given, "decision")
    if decision != "reject":
        return Approve(always=_ALWAYS.get(decision, False), hash=pause.hash)
    return Reject(_text(pause, given, "reason")[:_REASON])


# --- an interrupted effect --------------------------------------------------------------------------------------------


def _uncertain() -> dict[str, Any]:
    outcomes = ["happened", "not_happened", "run_again"]
    result = "what it returned, as JSON, if it happened and returned something"
    return _object(
        {
            "outcome": _choice("Outcome", "how the call ended; run_again makes it again", outcomes),
            "result": {"type": "string", "title": "Result", "description": result},
        },
        ["outcome"],
    )


def _uncertain_answer(pause: Pause, asked: Schema, given: Mapping[str, Any]) -> Happened | NotHappened | RunAgain:
    outcome, result = _chosen(pause, asked, given, "outcome"), _text(pause, given, "result")
    if outcome == "happened":
        return Happened(_json(pause, result, "result") if result.strip() else None)
    if result.strip():
        _refuse(pause, "the field 'result' belongs to an effect that happened")
    return NotHappened() if outcome == "not_happened" else RunAgain()


# --- a question -------------------------------------------------------------------------------------------------------


def _question(pause: Pause) -> dict[str, Any]:
    if pause.options is not None:
        return _object({_ANSWER: _choice("Answer", "", list(dict.fromkeys(pause.options)))}, [_ANSWER])
    schema = pause.schema
    if schema is None:
        return _object({_ANSWER: {"type": "string", "title": "Answer"}}, [_ANSWER])
    fields = forms.fields(schema)
    if not fields:
        single = None if "null" in (forms.types_of(schema, schema) or ()) else _field(schema, schema)
        return _as_json() if single is None else _object({_ANSWER: {"title": "Answer", **single}}, [_ANSWER])
    found = {name: _field(field, schema) for name, field in fields.items()}
    if not all(found.values()) or not all(_is_label(name) for name in found):
        return _as_json()
    must = [name for name in forms.required(schema) if name in found and not _may_be_null(fields[name], schema)]
    return _object(cast("dict[str, dict[str, Any]]", found), must)


def _value(pause: Pause, given: Mapping[str, Any]) -> Any:
    asked = form_of(pause)["properties"]
    schema = pause.schema
    if pause.options is not None or schema is None:
        return _text(pause, given, _ANSWER)
    fields = forms.fields(schema)
    if asked.keys() == {_JSON} and asked[_JSON] == _as_json()["properties"][_JSON]:
        return _json(pause, _text(pause, given, _JSON), _JSON)
    if not fields:
        return given[_ANSWER]
    # In the form, a required field that can be null is optional, since a form cannot express null.
    absent = [name for name in forms.required(schema) if name in fields and name not in given]
    return {**given, **dict.fromkeys(absent)}


def _as_json() -> dict[str, Any]:
    about = "the answer, as JSON: texts in double quotes, lists in [ ], fields in { }"
    return _object({_JSON: {"type": "string", "title": "Answer as JSON", "description": about}}, [_JSON])


def _field(field: Schema, root: Schema) -> dict[str, Any] | None:
    """Convert a field to a schema that MCP accepts; None if there is no such schema."""
    types = forms.types_of(field, root)
    kinds = (types or set()) - {"null"}
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    if len(kinds) != 1:
        return None
    [kind] = kinds
    # In a union with null, the other part has the bounds.
    parts = [each for each in _parts(field, root) if forms.types_of(each, root) != {"null"}]
    part = parts[0] if len(parts) == 1 else {}
    made: dict[str, Any] = {"type": kind}
    for name in ("title", "description"):
        words = field.get(name, part.get(name))
        if isinstance(words, str) and words.strip():
            made[name] = shortened(one_line(words), _WORDS)
    choices = part.get("enum", [part["const"]] if "const" in part else None)
    if kind == "string" and isinstance(choices, list):
        made["enum"] = [choice for choice in dict.fromkeys(choices) if choice is not None]
    made |= {name: part[name] for name in _BOUNDS if _is_number(part.get(name))}
    if kind == "string" and part.get("format") in _FORMATS:
        made["format"] = part["format"]
    default = field.get("default")
    return made if default is None or type(default) not in _PYTHON[kind] else {**made, "default": default}


_PYTHON: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def _parts(field: Schema, root: Schema) -> list[Schema]:
    """Return the schemas behind `anyOf`, for a field that `types_of` could resolve."""
    field = forms.resolved(field, root)
    parts = field.get("anyOf")
    return [part for each in parts for part in _parts(each, root)] if isinstance(parts, list) else [field]


def _may_be_null(field: Schema, root: Schema) -> bool:
    return "null" in (forms.types_of(field, root) or ())


# --- all of them ------------------------------------------------------------------------------------------------------


def _object(properties: dict[str, dict[str, Any]], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _choice(title: str, about: str, choices: list[str]) -> dict[str, Any]:
    words = {"description": about} if about else {}
    return {"type": "string", "title": title, **words, "enum": choices}


def _chosen(pause: Pause, asked: Schema, given: Mapping[str, Any], name: str) -> str:
    choices: list[str] = asked["properties"][name]["enum"]
    if given[name] not in choices:
        _refuse(pause, f"the field {name!r} must be one of {', '.join(choices)}")
    return str(given[name])


def _text(pause: Pause, given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        _refuse(pause, f"the field {name!r} must be a string")
    return value


def _json(pause: Pause, text: str, name: str) -> Any:
    problem = ""
    try:
        return forms.read_json(text)
    except InvalidArgument as error:
        problem = error.problem
    _refuse(pause, f"the field {name!r}: {problem}")


def _refuse(pause: Pause, problem: str) -> NoReturn:
    raise AnswerInvalid(
        f"the answer to the pause {pause.id!r} is invalid: {problem}", remedy="fill in the form as its schema says"
    )


def _is_label(name: str) -> bool:
    return name.isprintable() and 0 < len(name) <= _WORDS


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
