"""Converts pauses to forms of MCP's elicitation, and submitted forms to a person's answer.

The schemas use only what every revision of MCP accepts: one level of fields, each a string, a number, a boolean or an
enum of strings. An answer that needs more is requested as JSON in a string. Bounds that a form cannot express are
checked when the answer arrives, together with the rest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn, cast

from ...core.errors import AnswerInvalid, InvalidArgument
from ...core.pauses import Answer, Approve, Happened, NotHappened, Pause, PersonAnswer, Reject, RunAgain, may_be_always
from . import pauses as forms
from .pauses import one_line, pause_lines

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
    shortened = "\n".join(
        [*pause_lines(pause), *([f"the last answer was not accepted: {one_line(problem)}"] if problem else [])]
    )
    return shortened if len(shortened) <= _MESSAGE else f"{shortened[:_MESSAGE]}… ({len(shortened)} characters)"


def form_of(pause: Pause) -> dict[str, Any]:
    """Return the `requestedSchema` for the answer to a pause."""
    match pause.kind:
        case "approval":
            return _approval(pause)
        case "uncertain":
            return _uncertain()
        case "question":
            return _question(pause)


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
            "outcome": _choice("Outcome", "what became of the call; run_again makes it again", outcomes),
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
    must = [name for name in _required(schema) if name in found and not _may_be_null(fields[name], schema)]
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
    absent = [name for name in _required(schema) if name in fields and name not in given]
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
            made[name] = _short(words)
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


def _required(schema: Schema) -> list[str]:
    found = forms.resolved(schema, schema).get("required", ())
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


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


def _short(words: str) -> str:
    shortened = one_line(words)
    return shortened if len(shortened) <= _WORDS else f"{shortened[:_WORDS]}…"


def _is_label(name: str) -> bool:
    return name.isprintable() and 0 < len(name) <= _WORDS


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
