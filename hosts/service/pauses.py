"""A pause as text for a person, and the forms that its JSON Schema describes: their fields, and values that are typed.

Texts cannot control a terminal: a model or a tool can have written them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...core import canonical_json
from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.pauses import Pause, may_answer
from ...harness.gate.labels import as_said

if TYPE_CHECKING:
    from ...harness.trace import Flow, TurnTrace

_ARGUMENTS, _OPTIONS = 30, 50  # how many are shown
_VALUE, _QUESTION, _OPTION = 300, 4000, 200  # characters of each that are shown
_NAMES: Final = 20  # columns in which the names of a form's fields line up

NUMBER: Final = re.compile(r"[0-9]{1,9}")

Schema = Mapping[str, Any]

_SCALARS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}
_MANY: Final = {"array": "list", "object": "object"}
_BOUNDS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
}
MAX_DEPTH, MAX_DESCRIBED_DEPTH = 10, 3  # levels of nested schemas that are examined, that are described
MAX_SHOWN_CHARACTERS: Final = 160  # characters of a value or of a validation error that are shown
MAX_LISTED_CHOICES: Final = 12  # choices that are listed
_TRUE, _FALSE = ("true", "yes"), ("false", "no")

# A model's text must not control the terminal. This drops control characters except tab and line feed, and characters
# that reverse the order of others. Separators that some terminals treat specially become line feeds.
_CONTROLS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
) | {0x2028: "\n", 0x2029: "\n"}


def pause_lines(pause: Pause) -> list[str]:
    """Describe what a turn waits for, in lines for a person."""
    return [*_asked(pause), *_about(pause)]


def is_late(pause: Pause) -> bool:
    """Whether the pause has expired: it accepts no answer any more, and fails when the turn resumes."""
    return pause.expires is not None and pause.expires <= datetime.now(UTC)


def takes_answer(pause: Pause) -> bool:
    """Whether a person can answer the pause: it has not expired, and it does not wait for the reply to a message."""
    return pause.kind != "reply" and not is_late(pause)


def takes_answer_of(account: str | None, pause: Pause) -> bool:
    """Whether this account can answer the pause."""
    return takes_answer(pause) and may_answer(account, pause.approvers)


def waits_for_reply(pause: Pause) -> bool:
    """Whether only the reply to a message, or the end of its time, continues the turn."""
    return pause.kind == "reply" and not is_late(pause)


def unanswered(pauses: Iterable[Pause]) -> tuple[Pause, ...]:
    """The pauses of a thread that have no answer yet."""
    return tuple(pause for pause in pauses if not pause.answered)


def printable(text: str) -> str:
    """Return `text` without characters that could control a terminal."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """Return `text` on one line, without characters that could control a terminal."""
    return " ".join(printable(text).split())


def numbered(options: tuple[str, ...]) -> bool:
    """Whether options can be chosen by number. They cannot if one of them looks like the number of another."""
    return not any(NUMBER.fullmatch(option.strip()) for option in options)


def _asked(pause: Pause) -> Iterator[str]:
    """The call or the question, with everything that belongs to it."""
    function = one_line(pause.function)
    match pause.kind:
        case "approval":
            yield f"approval of a call: {function}"
        case "uncertain":
            yield f"uncertain call: {function}"
            yield "It was interrupted while it ran. It is not known whether its effect happened."
        case "question":
            yield "question:"
            lines = printable(shortened(pause.question or "", _QUESTION)).split("\n")
            yield from (f"  {line}" for line in lines)
        case "reply":
            yield "it waits for the reply to a message; no person can answer it"
    yield from _arguments(pause)
    if pause.kind == "approval":
        for word, shown in _facts(pause):
            yield f"{word}: {one_line(shortened(shown, _QUESTION if word == 'description' else _VALUE))}"
    if pause.options is not None:
        yield from _choices(pause.options)
    elif pause.kind == "question" and pause.schema is not None and not is_text(pause.schema):
        yield from _form(pause.schema)


def _about(pause: Pause) -> Iterator[str]:
    """The state of the pause: what was wrong with the last answer, and until when an answer is accepted."""
    if pause.problem is not None:
        yield f"the last answer was not accepted: {one_line(shortened(pause.problem, _QUESTION))}"
    if pause.expires is not None:
        word = "expired at" if is_late(pause) else "open until"
        yield f"{word} {pause.expires.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _arguments(pause: Pause) -> Iterator[str]:
    places = {name: str(place) for place, name in enumerate(sorted(pause.arguments))}
    for name, value in list(pause.arguments.items())[:_ARGUMENTS]:
        steps = {name, places[name], ""}
        source = source_text(label for path, label in pause.labels.items() if path.partition(".")[0] in steps)
        yield f"  {one_line(name)}: {shortened(_json(value), _VALUE)}{f'  ({source})' if source else ''}"
    if len(pause.arguments) > _ARGUMENTS:
        yield f"  ({len(pause.arguments) - _ARGUMENTS} more)"


def source_text(labels: Iterable[Mapping[str, Any]]) -> str:
    """Where an argument with these labels comes from, in words; empty if there are none.

    Args:
        labels: Labels as in `Pause.labels`, or as in the event `call_started`.
    """
    labels = [*labels]
    said = [_list(_HOW[form], found) for form in _HOW if (found := _origins(labels, form))]
    chosen = {as_said(str(each)) for label in labels for each in label.get("chosen", ())}
    said += [_list("chosen by", chosen)] if chosen else []
    readers = {" or ".join(globs) or "nobody" for label in labels for globs in label.get("readers", ())}
    said += [_list("only for", readers)] if readers else []
    said += ["not for everybody"] if any(label.get("restricted") for label in labels) else []
    through = {f"a {each}" for label in labels for each in label.get("through", ())}
    said += [_list("through", through)] if through else []
    said = said or (["from the person"] if labels else [])
    said += ["the decision depends on it"] if any(label.get("decided") for label in labels) else []
    return one_line("; ".join(said))


def flow_ways(trace: TurnTrace) -> list[tuple[str, ...]]:
    """The ways of values in a turn: from an origin, perhaps by a reader or a program, to what they reached.

    The last part of a way also says what the value can carry, and the decision about the call.
    """
    found = dict[tuple[str, ...], None]()
    for flow in trace.flows:
        by = f", {flow.decision} by {flow.gate}" if flow.decision else ""
        for origin in map(as_said, flow.origins):
            made = (" and ".join(flow.through),) if flow.through and origin != "person" else ()
            found[origin, *made, f"{flow.target} ({flow.form}){by}"] = None
        for origin in map(as_said, flow.chosen):
            found[origin, f"{flow.target} (chosen by it){by}"] = None
    return [*found]


def flow_record(flow: Flow) -> dict[str, Any]:
    """Return a flow of a trace as JSON, with its `target`, and with what it says in words as `says`."""
    found = flow.model_dump(mode="json", exclude_defaults=True)
    return {**found, "target": flow.target, "says": source_text([flow.model_dump()])}


_HOW: Final[Mapping[str, str]] = {
    "words": "can be words of",
    "span": "a part of",
    "bounded": "chosen after reading",
    "value": "from",
}
"""The words before the origins of a value, by its form."""


def _origins(labels: Iterable[Mapping[str, Any]], form: str) -> set[str]:
    return {
        as_said(str(origin)).removesuffix(".*")
        for label in labels
        if label["form"] == form
        for origin in label["origins"]
        if form != "value" or origin != "person"
    }


def _list(how: str, names: Iterable[str]) -> str:
    return f"{how} {shortened(', '.join(sorted(names)), _VALUE)}"


def _facts(pause: Pause) -> Iterator[tuple[str, str]]:
    """What a person should know about a call besides its arguments, as pairs of a label and a text."""
    if pause.risk:
        yield "risk", ", ".join(word.replace("_", " ") for word in pause.risk)
    if pause.description:
        yield "description", pause.description
    if pause.caller:
        yield "called by", pause.caller
    if pause.reason:
        yield "reason", pause.reason
    if pause.approvers:
        yield "approvers", ", ".join(pause.approvers)


def _choices(options: tuple[str, ...]) -> Iterator[str]:
    width = len(str(len(options)))
    for number, option in enumerate(options[:_OPTIONS], start=1):
        mark = f"{number:>{width}}" if numbered(options) else "-"
        yield f"  {mark}  {one_line(shortened(option, _OPTION))}"
    if len(options) > _OPTIONS:
        yield f"  ({len(options) - _OPTIONS} more)"


def _form(schema: Schema) -> Iterator[str]:
    lines = field_lines(schema)
    width = min(_NAMES, max((len(name) for name, _ in lines), default=0))
    for name, shown in lines:
        yield f"  {one_line(name).ljust(width)}  {one_line(shortened(shown, _VALUE))}"


def _json(value: Any) -> str:
    """A value as JSON on one line. Invisible characters are escaped, so that a person sees all that they approve."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in said)


def shortened(text: str, limit: int) -> str:
    """The beginning of a text, and its length if that is not all of it."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


# --- forms ------------------------------------------------------------------------------------------------------------


def is_text(schema: Schema | None) -> bool:
    """Whether any text is a valid answer."""
    return schema is None or types_of(schema, schema) == {"string"}


def fields(schema: Schema) -> dict[str, Schema]:
    """The fields of a form, with references resolved; empty if the schema is not a form but another JSON value."""
    form = resolved(schema, schema)
    found = form.get("properties")
    if not isinstance(found, Mapping):
        return {}
    # A schema that was stored as JSON has its fields in alphabetical order, but `required` keeps the original order.
    names = dict.fromkeys([*(name for name in required(schema) if name in found), *found])
    return {name: resolved(found[name], schema) for name in names if isinstance(found[name], Mapping)}


def required(schema: Schema) -> list[str]:
    """The names of the fields that a form must have."""
    found = resolved(schema, schema).get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def plain(schema: Schema) -> bool:
    """Whether the form can be answered as `field=value`: it has fields, and each takes a single value."""
    return named(schema) and all(types_of(field, schema) for field in fields(schema).values())


def named(schema: Schema) -> bool:
    """Whether each field can be named in `field=value`. Fields that take more than one value are written as JSON."""
    return bool(fields(schema)) and all(re.fullmatch(r"[^\s=]+", name) for name in fields(schema))


def field_lines(schema: Schema) -> list[tuple[str, str]]:
    """Each field's name, and a description of the values that it takes."""
    must = required(schema)
    return [
        (name, _describe(field, schema) + ("" if name in must else _optional_text(field)))
        for name, field in fields(schema).items()
    ]


def read_json(text: str, what: str = "this", *, remedy: str = 'write text in double quotes, such as "done"') -> Any:
    """Read a JSON value that other systems can read as JSON too.

    Args:
        text: The text.
        what: What gives it, for the error.
        remedy: The remedy of the error.

    Raises:
        InvalidArgument: The text is not such a value.
    """
    problem = "it is nested too deeply"
    try:
        found = json.loads(text)
        canonical_json(found).encode()
        return found
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except ValueError:  # NaN, a number that is too large, half of a surrogate pair
        problem = "it holds a value that JSON cannot represent"
    except RecursionError:
        pass
    raise InvalidArgument(f"{what} is not valid JSON: {problem}", remedy=remedy)


def read_pairs(schema: Schema, text: str) -> dict[str, Any]:
    """Read `field=value field=value`. A value ends where the next field begins, or is written in double quotes.

    Args:
        schema: A form whose fields are `named`.
        text: What was typed.

    Raises:
        InvalidArgument: The text does not fit the form; the error names the field.
    """
    known = fields(schema)
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    head, following = re.compile(rf"\s*({names})="), re.compile(rf"\s+(?:{names})=")
    found: dict[str, Any] = {}
    text, at = text.strip(), 0
    while at < len(text):
        match = head.match(text, at)
        if match is None:
            _refuse(f"{text[at:].split('=')[0].strip()[:40]!r} is not a field of this form", known)
        name, start = match[1], match.end()
        if name in found:
            _refuse(f"the field {name!r} is given twice", known)
        if text.startswith('"', start):
            value, at = _quoted(name, text, start)
            types: set[str] | None = {"string"}
        else:
            after = following.search(text, start)
            at = len(text) if after is None else after.start()
            value, types = text[start:at].strip(), types_of(known[name], schema)
        if types is None:
            found[name] = read_json(value, f"the field {name!r}", remedy='write it as JSON, such as ["a", "b"]')
        else:
            found[name] = _typed(name, value, types)
    return found


def validation_errors(schema: Schema, value: Any) -> list[str]:
    """The validation errors of `value`; empty if it fits. The code that asked checks what cannot be checked here."""
    from ...harness.schema import Checker  # its folder loads what a command without a form does not need

    try:
        found = Checker("the form", schema).quoting(value)
    except FunctionInvalid:
        return []
    texts = (": ".join(filter(None, [".".join(map(str, each.where)), _shown(each.text)])) for each in found)
    return sorted(texts)[:5]


def resolved(schema: Schema, root: Schema) -> Schema:
    """A schema, or the schema in `root` that it refers to."""
    for _ in range(10):  # bounded, since a reference can refer to itself
        name = str(schema.get("$ref", ""))
        if not name.startswith("#/$defs/"):
            break
        found = root.get("$defs", {}).get(name.removeprefix("#/$defs/"))
        if not isinstance(found, Mapping):
            break
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def types_of(schema: Schema, root: Schema, *, deep: int = 0) -> set[str] | None:
    """The types of a single value; None if the schema allows other values too, or declares no type."""
    schema = resolved(schema, root)
    if "anyOf" in schema:
        found: set[str] = set()
        for part in schema["anyOf"] if deep < MAX_DEPTH else (None,):
            types = types_of(part, root, deep=deep + 1) if isinstance(part, Mapping) else None
            if not types:
                return None
            found |= types
        return found
    if "enum" in schema or "const" in schema:
        kinds = {_type_of(value) for value in schema.get("enum", [schema.get("const")])}
        return {kind for kind in kinds if kind is not None} if None not in kinds else None
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) and kind in _SCALARS else None


def _type_of(value: object) -> str | None:
    for kind, name in ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else None


def _describe(schema: object, root: Schema, deep: int = 0) -> str:
    if not isinstance(schema, Mapping) or deep > MAX_DESCRIBED_DEPTH:
        return "JSON"
    schema = resolved(schema, root)
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if not (isinstance(part, Mapping) and part.get("type") == "null")]
        kind = " or ".join(dict.fromkeys(_describe(part, root, deep + 1) for part in parts[:MAX_LISTED_CHOICES]))
    elif "enum" in schema or "const" in schema:
        choices = [_shown(value) for value in schema.get("enum", [schema.get("const")])]
        kind = " | ".join(choices[:MAX_LISTED_CHOICES]) + (
            f" | {len(choices) - MAX_LISTED_CHOICES} more" if len(choices) > MAX_LISTED_CHOICES else ""
        )
    else:
        found = schema.get("type")
        kind = (_SCALARS | _MANY).get(found, "JSON") if isinstance(found, str) else "JSON"
        if isinstance(schema.get("format"), str):
            kind += f" ({schema['format']})"
    kind += "".join(f", {words.format(_shown(schema[key]))}" for key, words in _BOUNDS.items() if key in schema)
    about = schema.get("description")
    return f"{kind}: {about}" if isinstance(about, str) and about else kind


def _optional_text(field: Schema) -> str:
    default = field.get("default")
    return " [optional]" if default is None else f" [optional, default: {_shown(default)}]"


def _shown(value: object) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= MAX_SHOWN_CHARACTERS else f"{said[:MAX_SHOWN_CHARACTERS]}…"


def _quoted(name: str, text: str, start: int) -> tuple[str, int]:
    with suppress(ValueError):
        value, end = json.JSONDecoder().raw_decode(text, start)
        if end == len(text) or text[end].isspace():
            return value, end
    raise InvalidArgument(
        f"the value of the field {name!r} begins with a double quote and must end with one",
        remedy=r"write a quote inside a value as \", or answer with a JSON object",
    )


def _typed(name: str, value: str, types: set[str]) -> Any:
    if types <= {"string", "null"} and "string" in types:
        return value
    if "boolean" in types and value.casefold() in (*_TRUE, *_FALSE):
        return value.casefold() in _TRUE
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = value
    kind = _type_of(found)
    if kind in types or (kind == "integer" and "number" in types):
        return found
    if "string" in types:
        return value
    wanted = " or ".join(_SCALARS[kind] for kind in _SCALARS if kind in types)
    raise InvalidArgument(f"the field {name!r} must be of type {wanted}", remedy=f"write {name}= and then the {wanted}")


def _refuse(problem: str, known: Mapping[str, Schema]) -> NoReturn:
    raise InvalidArgument(
        problem, remedy=f"give each field once as field=value ({', '.join(known)}), or give a JSON object"
    )
