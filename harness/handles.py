"""Handles: what a guarded model sees of results that it must not read, and writes in place of their values (H11).

A result of an untrusted function is held: the model sees its *outline*, which has names and types that the function
declares, and counts, and nothing that a stranger wrote. In arguments and answers it writes objects with one key that
begins with `$`, so that no text can be taken for one:

    {"$": "r1[0].sender"}                                     a part of the result r1
    {"$text": "Re: {0}", "of": ["r1[0].subject"]}             a text with parts
    {"$ask": "the IBAN", "of": ["r1[0].body"], "as": "span"}  what a reader finds in parts
    {"$run": "len(x)", "of": ["r1"]}                          what a program makes of parts

Code puts the values in their place, and gives each a label. This module calls no model.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from ..core import canonical_json
from ..core.marks import mark_of
from .bounds import fits_bounds
from .function import Readers, item_at, readers_of, readers_of_any
from .gate.arguments import can_be
from .gate.labels import OWN, Form, Label, Steps, is_at, joined, origin_of
from .guard import OnError
from .quoting import with_quoted

PART: Final = "$"
ASK: Final = "$ask"
RUN: Final = "$run"

_STEP: Final = re.compile(r'\.([A-Za-z_][A-Za-z0-9_]*)|\[(-?\d{1,9}|\*)\]|\[("(?:[^"\\]|\\.)*")\]')
_PROJECTION: Final = re.compile(r"\.\{\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*\}\Z")
_NAMES: Final = ("x", "y", "z")  # of the parts in an expression
_HEAD: Final = re.compile(r"[a-z][a-z0-9_]*")
_PLACE: Final = re.compile(r"\{(\d{1,4})\}")
_OBJECT: Final = re.compile(r'\{\s*"\$')
_MAY_OPEN: Final = re.compile(r'\{\s*(?:"(?:\$|\Z)|\Z)')
_MOST_PARTS: Final = 10_000  # of one handle with `[*]`
_DEEPEST: Final = 20  # references of a schema that are followed in a chain
_MOST_FIELDS: Final = 200  # that one outline says of items

_HANDLE: Final[Mapping[str, Any]] = {"type": "object"}  # for each param, so it is short; the guide says the rest

GUIDE: Final = """\
Results of some tools are held back, because strangers can have written them. You see their outline instead, such as
r1: list of 3 [{id: int, sender: text}]
or (m_1a2b3c4d: a message of 40 characters; not shown)
You cannot read them, and you do not need to. To pass a value on, write an object in its place, in an argument or in
your answer:
{"$": "r1[0].sender"} for a part; r1[*].id is that part of each item
{"$text": "Re: {0}", "of": ["r1[0].subject"]} for a text with parts
{"$ask": "the IBAN to pay to", "of": ["r1[0].body"], "as": "span"} for what a reader finds there; `as` is bool, int,
number, date, span (a part of one text), text, item (of the first part, a list), or a list of words to choose from
{"$run": "max(x, key=lambda f: f['size'])['id']", "of": ["r1[*].{id,size}"]} for a Python expression over x, y, z"""
"""What a guarded model is told."""


class HandleInvalid(ValueError):
    """A handle cannot be resolved. The text names it, and has nothing of the results."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A result that a guarded model does not read.

    Attributes:
        name: By which the model names it, such as `r1`.
        value: The result as JSON.
        schema: The JSON Schema that its function declares; empty if there is none.
        label: The label of what it was made of; of all of it, if `function` is empty.
        function: The untrusted function that returned it, whose fields are origins.
        fields: Globs over the fields that the function's system makes.
        readers: Who may see it, or an item of it.
        on_error: Receives what a function of readers raises.
    """

    name: str
    value: Any = field(repr=False)
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    label: Label = OWN
    function: str = ""
    fields: tuple[str, ...] = ()
    readers: Readers | None = None
    on_error: OnError | None = field(default=None, repr=False)
    _seen: dict[int | None, frozenset[tuple[str, ...]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def outline(self) -> str:
        """What the model sees of it."""
        return f"{self.name}: {_outline(self.value, self.schema, self, ())}"

    @property
    def marks(self) -> frozenset[str]:
        """What is kept with it in the log; see `Label`."""
        readers = map(mark_of, readers_of_any(self.readers))
        return self.label.marks.union(readers, [self.function] if self.function else [])

    @property
    def outline_without_values(self) -> str:
        """The same without the values of its fields, for traces."""
        return replace(self, function="", readers=None).outline

    def label_at(self, steps: Steps) -> Label:
        """The label of a part: of a declared field, else of all that strangers can have written.

        Args:
            steps: The keys and places that lead to it.
        """
        label = self._made_at(steps)
        if self.readers is None:
            return label
        place, item = item_at(self.value, steps)
        if place not in self._seen:
            self._seen[place] = readers_of(self.readers, item, self.on_error)
        return label.seen_by(self._seen[place])

    def _made_at(self, steps: Steps) -> Label:
        if not self.function:
            return self.label
        glob = next((glob for glob in self.fields if is_at(steps, glob)), None)
        own = Label((origin_of(self.function, glob or self._field(steps)),), "words" if glob is None else "value")
        return own.chosen_by(self.label)

    def _field(self, steps: Steps) -> str:
        """The name of a field that the function declares; `*` for any other, since keys can be a stranger's text."""
        schema: Any = self.schema
        for step in steps:
            ways = _ways(schema, self.schema)
            if isinstance(step, int):
                places = next((way["prefixItems"] for way in ways if "prefixItems" in way), ())
                items: Any = next((way["items"] for way in ways if "items" in way), {})
                schema = places[step] if step < len(places) else items
                continue
            declared = next((way["properties"] for way in ways if step in way.get("properties", {})), None)
            if declared is None:
                return "*"
            schema = declared[step]
        return ".".join(step for step in steps if isinstance(step, str)) or "*"


@dataclass(frozen=True, slots=True)
class Resolved:
    """JSON of a model with values in the place of handles.

    Attributes:
        value: The JSON.
        strange: The texts, numbers and keys in it that are not the person's, with their steps and labels.
        unset: The names of params that were not given, and have their default.
    """

    value: Any
    strange: tuple[tuple[Steps, Any, Label], ...] = ()
    unset: frozenset[str] = frozenset()
    _labels: dict[tuple[Any, ...], Label] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def label(self) -> Label:
        """The label of all of it."""
        return joined(label for _, _, label in self.strange)

    def below(self, step: str | int) -> Resolved:
        """The same as a part of something."""
        return replace(self, strange=tuple(((step, *steps), value, label) for steps, value, label in self.strange))

    def relabelled(self, change: Callable[[Label], Label]) -> Resolved:
        """The same with other labels for what is not the person's."""
        return replace(self, strange=tuple((steps, value, change(label)) for steps, value, label in self.strange))

    def joined(self, other: Label) -> Resolved:
        """The same as a part of something that has another label as well."""
        return self if other == OWN else self.relabelled(other.join)

    def made_by(self, made: str) -> Resolved:
        """The same as a reader or a program made or found it."""
        return self.relabelled(lambda label: label.made_by(made))

    def read(self, params: BaseModel) -> Resolved:
        """The same, once it was read as the params of a function."""
        fields = type(params).model_fields
        unset = (name for name in fields if name not in params.model_fields_set)
        return replace(self, unset=frozenset(fields[name].serialization_alias or name for name in unset))

    def has(self, argument: str) -> bool:
        """Whether the model gave this argument."""
        return isinstance(self.value, Mapping) and argument in self.value

    def label_of(self, argument: str, value: Any) -> Label:
        """The label of a text, number or key in an argument of the call. What validation made of others has all labels.

        Args:
            argument: The name of the argument.
            value: The text, number or key.
        """
        if not self.strange:
            return OWN
        found = self._known.get((argument, _type(value), value))
        if found is not None:
            return found
        is_default = argument in self.unset and not any(_is_same(each, value) for _, each, _ in self.strange)
        return OWN if is_default else self._known[()]

    @property
    def _known(self) -> Mapping[tuple[Any, ...], Label]:
        """The labels of values by their argument, type and value, and of all of them; made once for many values."""
        if not self._labels:
            for steps, value, label in self.strange:
                key = (*steps[:1], _type(value), value)
                self._labels[key] = self._labels[key].join(label) if key in self._labels else label
            for argument, given in self.value.items() if isinstance(self.value, Mapping) else ():
                for _, value in _values(given):
                    self._labels.setdefault((argument, _type(value), value), OWN)
            self._labels[()] = self.label
        return self._labels


def _is_same(one: Any, other: Any) -> bool:
    return _type(one) is _type(other) and bool(one == other)


def _type(value: Any) -> type:
    """The type of a value. An integer is a number too, since validation can make a float of it."""
    return float if type(value) is int else type(value)


# --- what the model sees ----------------------------------------------------------------------------------------------


def _outline(value: Any, schema: Any, held: Held, steps: Steps) -> str:
    ways = [way for way in _ways(schema, held.schema) if _is_type(value, way.get("type"))]
    way = ways[0] if ways else {}
    match value:
        case Mapping():
            way = next((each for each in ways if can_be([each], value)), way)
            declared = way.get("properties", {})
            names = [name for name in declared if name in value]
            if not names:
                return f"mapping of {len(value)}{_inside([way], 'additionalProperties', held.schema)}"
            inner = (f"{name}: {_outline(value[name], declared[name], held, (*steps, name))}" for name in names)
            return f"{{{', '.join(inner)}}}"
        case list() if len(places := way.get("prefixItems", ())) == len(value) > 0:
            inner = (_outline(each, places[at], held, (*steps, at)) for at, each in enumerate(value))
            return f"[{', '.join(inner)}]"
        case list():
            return f"list of {len(value)}{_inside(ways, 'items', held.schema) if value else ''}"
        case None:
            return "none"
        case _:
            return _outline_of_value(value, way, held, steps)


def _inside(ways: Iterable[Mapping[str, Any]], key: str, root: Any) -> str:
    """The kinds of the items of lists, or of the values of mappings, if schemas declare them."""
    declared = (way[key] for way in ways if isinstance(way.get(key), Mapping))
    kinds = dict.fromkeys(_kind(each, root) for each in declared if each)
    return f" [{' or '.join(kinds)}]" if kinds else ""


def _outline_of_value(value: Any, way: Mapping[str, Any], held: Held, steps: Steps) -> str:
    kind = _kind(way, held.schema) if way else _TYPES.get(type(value), "text")
    label = held.label_at(steps)
    # What a model sees it writes as its own, so nothing that a stranger chose is shown, nor what not all may see.
    open_to_it = held.function and label.form == "value" and not (label.chosen or label.readers)
    if open_to_it and fits_bounds(value, way):
        return f"{kind} {value if isinstance(value, str) else canonical_json(value)}"
    return f"text of {len(value)}" if kind == "text" else kind


_TYPES: Final[Mapping[type, str]] = {bool: "bool", int: "int", float: "number"}


def _kind(schema: Any, root: Any) -> str:
    """The kind of the values that a schema declares.

    Args:
        schema: The schema.
        root: The schema that its references are in.
    """
    return _Kinds(root).of(schema)


class _Kinds:
    """Describes schemas, which can be in themselves, and can refer to each other so often that nobody could read it.

    Args:
        root: The schema that references are in.
    """

    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _MOST_FIELDS

    def of(self, schema: Any, above: tuple[Any, ...] = ()) -> str:
        """The kind of the values that a schema declares.

        Args:
            schema: The schema.
            above: The schemas of the objects and lists that it is in.
        """
        ways = _ways(schema, self._root)
        return " or ".join(dict.fromkeys(self._of_way(way, above) for way in ways)) or "any"

    def _of_way(self, way: Mapping[str, Any], above: tuple[Any, ...]) -> str:
        inside = (*above, way)
        match way.get("type"):
            case "object" if any(way is each for each in above):
                return "mapping as above"
            case "object" if way.get("properties") and self._left > 0:
                self._left -= len(way["properties"])
                fields = (f"{name}: {self.of(each, inside)}" for name, each in way["properties"].items())
                return f"{{{', '.join(fields)}}}"
            case "array" if any(way is each for each in above) or self._left <= 0:
                return "list"
            case "array" if way.get("prefixItems"):
                self._left -= len(way["prefixItems"])
                return f"[{', '.join(self.of(each, inside) for each in way['prefixItems'])}]"
            case "array":
                return f"list of {self.of(way.get('items', {}), inside)}"
            case "string":
                return {"date": "date", "date-time": "time"}.get(str(way.get("format")), "text")
            case str() as kind:
                return {"integer": "int", "boolean": "bool", "null": "none", "object": "mapping"}.get(kind, kind)
            case _:
                return "any"


def _ways(schema: Any, root: Any, deep: int = _DEEPEST) -> list[Mapping[str, Any]]:
    """The alternatives of a schema, without references."""
    while isinstance(schema, Mapping) and "$ref" in schema and deep:
        schema, deep = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {}), deep - 1
    if not isinstance(schema, Mapping) or not deep:
        return []
    ways = schema.get("anyOf") or schema.get("oneOf")
    return [each for way in ways for each in _ways(way, root, deep - 1)] if ways else [schema]


def _is_type(value: Any, kind: Any) -> bool:
    match value:
        case Mapping():
            return bool(kind == "object")
        case list():
            return bool(kind == "array")
        case str():
            return bool(kind == "string")
        case bool():
            return bool(kind == "boolean")
        case _:
            return kind in ("integer", "number")


def with_handles(params: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of params for a guarded model, which can write a handle in place of a param or an item."""
    properties = params.get("properties", {})
    return {**params, "properties": {name: _or_handle(each) for name, each in properties.items()}}


def _or_handle(schema: Any) -> dict[str, Any]:
    if isinstance(schema, Mapping) and isinstance(schema.get("items"), Mapping):
        schema = {**schema, "items": _or_handle(schema["items"])}
    return {"anyOf": [schema, _HANDLE]}


# --- what the model writes --------------------------------------------------------------------------------------------


def is_handle(value: Any) -> bool:
    """Whether a value stands for another one: an object with a key that begins with `$`."""
    return isinstance(value, Mapping) and any(isinstance(key, str) and key.startswith(PART) for key in value)


def _is_asked(handle: Mapping[str, Any]) -> bool:
    return ASK in handle or RUN in handle


def questions_in(value: Any) -> list[Mapping[str, Any]]:
    """The questions to readers and the expressions in JSON of a model, or in a text."""
    if isinstance(value, str):
        return [given for _, _, given in _objects(value) if _is_asked(given)]
    if is_handle(value):
        return [value] if _is_asked(value) else []
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [each for item in inside if not isinstance(item, str) for each in questions_in(item)]


def with_answers(value: Any, answers: Iterator[Mapping[str, Any]]) -> Any:
    """JSON of a model, or a text, with handles of answers in the place of the questions of `questions_in`."""
    if isinstance(value, str):
        found, at = list[str](), 0
        for begin, end, given in _objects(value):
            if _is_asked(given):
                found += [value[at:begin], canonical_json(next(answers))]
                at = end
        return "".join([*found, value[at:]])
    if is_handle(value):
        return next(answers) if _is_asked(value) else value
    if isinstance(value, Mapping):
        return {key: each if isinstance(each, str) else with_answers(each, answers) for key, each in value.items()}
    if isinstance(value, list):
        return [each if isinstance(each, str) else with_answers(each, answers) for each in value]
    return value


def has_handles(value: Any) -> bool:
    """Whether there is a handle in a value."""
    if is_handle(value):
        return True
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(has_handles, inside))


class AnswerUnfit(ValueError):
    """A reader's answer is not what was asked for. The text says what is, and has nothing of the answer."""


_KINDS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "int": "an integer",
    "number": "a number",
    "date": "a date as YYYY-MM-DD, or a time as YYYY-MM-DD HH:MM",
    "item": "the place of one item in the first part, counted from 0",
    "span": "a part of one of the texts, word for word",
    "text": "at most 2000 characters",
}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2})?)?", re.ASCII)
_ITEM: Final = re.compile("[0-9]{1,9}")  # `isdigit` holds of more than `int` reads
_LONGEST_ANSWER: Final = 2000
_MOST_WORDS: Final = 50  # that a reader can choose from
_ORDINARY: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a reader, which sees nothing but the parts.

    Attributes:
        text: The question.
        kind: What the answer is: a key of `_KINDS`, or the words to choose from.
        parts: The parts.
    """

    text: str
    kind: Any
    parts: tuple[Resolved, ...]

    def checked(self) -> Question:
        """Return it.

        Raises:
            HandleInvalid: Its kind is not one, or does not fit the parts.
        """
        words = isinstance(self.kind, list) and 1 < len(self.kind) <= _MOST_WORDS
        if not (words and all(isinstance(each, str) for each in self.kind)) and self.kind not in (*_KINDS,):
            raise HandleInvalid(f"`as` must be one of {', '.join(_KINDS)}, or a list of words")
        if self.kind == "item" and not isinstance(self.parts[0].value, list):
            raise HandleInvalid("to choose an item, the first part must be a list, such as r1 or r1[*].name")
        return self

    @property
    def form(self) -> str:
        """What the answer must be, in words."""
        return f"one of: {', '.join(self.kind)}" if isinstance(self.kind, list) else _KINDS[self.kind]

    @property
    def is_shown(self) -> bool:
        """Whether a model may see the answer: it can only choose between what the model itself said."""
        return self.kind == "bool" or isinstance(self.kind, list)

    def read(self, said: str) -> Resolved:
        """The answer of a reader, with the label of what it can carry.

        Args:
            said: What the reader said.

        Raises:
            AnswerUnfit: It is not of the kind that was asked for.
        """
        return self._read(said).made_by("reader")

    def _read(self, said: str) -> Resolved:
        said, label = said.strip(), joined(label for part in self.parts for _, _, label in part.strange)
        match self.kind:
            case "span":
                return self._span(said)
            case "item":
                return self._item(said)
            case "text":
                if not said or len(said) > _LONGEST_ANSWER:
                    raise AnswerUnfit(self.form)
                return _made(said, label, "words")
            case _:
                return _made(self._bounded(said), label, "bounded")

    def _bounded(self, said: str) -> Any:
        value: Any = None
        if isinstance(self.kind, list):
            value = next((word for word in self.kind if word.casefold() == said.casefold()), None)
        elif self.kind == "bool":
            value = {"true": True, "yes": True, "false": False, "no": False}.get(said.casefold())
        elif self.kind == "date":
            value = said if _DATE.fullmatch(said) else None
        else:
            value = self._number(said)
        if value is None:
            raise AnswerUnfit(self.form)
        return value

    def _number(self, said: str) -> int | float | None:
        try:
            number = float(said) if self.kind == "number" else int(said)
        except ValueError:
            return None
        return number if abs(number) <= _ORDINARY else None  # also refuses what is not a number

    def _span(self, said: str) -> Resolved:
        """A part of one text: it cannot put a secret of one text beside an address of another."""
        for part in self.parts:
            for at, text, label in part.strange or (((), part.value, OWN),):
                if said and isinstance(text, str) and said in text:
                    others = [
                        other
                        for each in self.parts
                        for steps, _, other in each.strange
                        if each is not part or steps != at
                    ]
                    return _made(said, label.chosen_by(joined(others)), "span")
        raise AnswerUnfit(self.form)

    def _item(self, said: str) -> Resolved:
        """A member of a list. All that the reader has read chose it, also what is in the list."""
        options, chooser = self.parts[0], joined(label for part in self.parts for _, _, label in part.strange)
        if not _ITEM.fullmatch(said) or int(said) >= len(options.value):
            raise AnswerUnfit(self.form)
        place, value = int(said), options.value[int(said)]
        found = [
            (steps[1:], each, label.chosen_by(chooser))
            for steps, each, label in options.strange
            if steps[:1] == (place,)
        ]
        if chooser != OWN:  # a value of the person's that a text chose
            known = {steps for steps, _, _ in found}
            own = OWN.chosen_by(chooser)
            found += [(steps, each, own) for steps, each in _values(value) if steps not in known]
        return Resolved(value, tuple(found))


def _check_expression(code: str) -> None:
    """Check that a text of the model is an expression, which says nothing of the parts.

    Raises:
        HandleInvalid: It is not one.
    """
    try:
        ast.parse(f"(\n{code}\n)", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise HandleInvalid(f"{code[:200]!r} is not a Python expression") from None


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of a guarded model over parts, which runs in the sandbox.

    Attributes:
        code: The expression.
        parts: The parts, which it knows as `x`, `y` and `z`.
    """

    code: str
    parts: tuple[Resolved, ...]

    @property
    def inputs(self) -> dict[str, Any]:
        """The parts by their names."""
        return {name: part.value for name, part in zip(_NAMES, self.parts, strict=False)}

    def read(self, value: Any) -> Resolved:
        """The value of the expression, with the labels of what is in it.

        A value that is in the parts keeps its own label, and all parts chose it. Other numbers and dates are bounded.

        Args:
            value: The value as JSON.
        """
        strange = [each for part in self.parts for each in part.strange]
        everything = joined(label for _, _, label in strange)
        found = list[tuple[Steps, Any, Label]]()
        for steps, each in _values(value):
            same = [label for _, other, label in strange if _is_same(other, each)]
            if same:
                label = joined(same).chosen_by(everything)
            else:
                bounded = _DATE.fullmatch(each) if isinstance(each, str) else abs(each or 0) <= _ORDINARY
                label = replace(everything, form="bounded" if bounded else "words")
            found.append((steps, each, label))
        return Resolved(value, tuple(found) if strange else ()).made_by("program")


def _projected(given: Resolved, keys: Sequence[str], path: str) -> Resolved:
    """The fields of an object, or of each object of a list."""
    items = given.value if isinstance(given.value, list) else [given.value]
    if not all(isinstance(item, Mapping) and item.keys() >= set(keys) for item in items):
        raise HandleInvalid(f"there is no part {path[:80]!r}; see the outline of the result")
    values = [{key: item[key] for key in keys} for item in items]
    at = 1 if isinstance(given.value, list) else 0
    strange = tuple(each for each in given.strange if len(each[0]) > at and each[0][at] in keys)
    return Resolved(values if at else values[0], strange)


def _made(value: Any, label: Label, form: Form) -> Resolved:
    return Resolved(value) if label == OWN else Resolved(value, (((), value, replace(label, form=form)),))


class Handles:
    """The results that a guarded model can name.

    Args:
        read: Returns the label of what the model has read. It is in all that the model makes of parts.
    """

    def __init__(self, read: Callable[[], Label] = lambda: OWN) -> None:
        self._made_of = read
        self._held: dict[str, Held] = {}
        self._read: dict[str, Resolved] = {}  # what readers found, by name

    def hold(self, held: Held) -> Held:
        """Add a result."""
        self._held[held.name] = held
        return held

    def keep(self, found: Resolved, name: str = "") -> Mapping[str, Any]:
        """Add what a reader found, and return a handle of it.

        Args:
            found: What it found.
            name: By which the model can name it; by default it does not learn of it.
        """
        name = name or f"read{len(self._read)}"
        self._read[name] = found.joined(self._made_of())
        return {PART: name}

    def question(self, given: Mapping[str, Any]) -> Question | Expression:
        """Read a question to a reader, or an expression.

        Args:
            given: The handle.

        Raises:
            HandleInvalid: It is not one, or names parts that are not there.
        """
        match given:
            case {"$ask": str() as text, "of": [_, *_] as paths, "as": kind} if len(given) == 3:
                parts = tuple(self.part(str(path)) for path in paths)
                return Question(text, kind, parts).checked()
            case {"$run": str() as code, "of": [_, *_] as paths} if len(given) == 2 and len(paths) <= len(_NAMES):
                _check_expression(code)
                return Expression(code, tuple(self.part(str(path)) for path in paths))
            case _:
                form = '{"$ask": "...", "of": ["r1.name"], "as": "span"}'
                raise HandleInvalid(f"{canonical_json(given)[:200]} is not {form}")

    def resolved(self, given: Any) -> Resolved:
        """Put values in the place of handles.

        Args:
            given: JSON of a model, such as arguments.

        Raises:
            HandleInvalid: There is a handle that cannot be resolved.
        """
        if is_handle(given):
            return self._value_of(given)
        match given:
            case Mapping():
                found = {key: self.resolved(each).below(key) for key, each in given.items()}
                return Resolved({key: each.value for key, each in found.items()}, _all(found.values()))
            case list():
                items = [self.resolved(each).below(place) for place, each in enumerate(given)]
                return Resolved([each.value for each in items], _all(items))
            case _:
                return Resolved(given)

    def part(self, path: str) -> Resolved:
        """The part of a result at a path.

        Raises:
            HandleInvalid: There is no such part.
        """
        if path in self._read:
            return self._read[path]
        if projected := _PROJECTION.search(path):
            return _projected(self.part(path[: projected.start()]), re.split(r"\s*,\s*", projected[1]), path)
        head = _HEAD.match(path)
        held = None if head is None else self._held.get(head[0])
        if head is None or held is None:
            raise HandleInvalid(f"no result is called {path[:80]!r}; {self._names}")
        steps, at = list[tuple[str, str, str]](), head.end()
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                raise HandleInvalid(f"{path[:80]!r} is not a path such as r1[0].name")
            steps.append((step[1] or "", step[2] or "", step[3] or ""))
            at = step.end()
        found, chooser = _walked(held, steps, path), self._made_of()
        return found if chooser == OWN else found.relabelled(lambda label: label.chosen_by(chooser))

    @property
    def _names(self) -> str:
        names = [*self._held, *(name for name in self._read if name.startswith("r") and not name.startswith("read"))]
        return f"the results are: {', '.join(names)}" if names else "there are no results"

    def _value_of(self, given: Mapping[str, Any]) -> Resolved:
        match given:
            case {"$": str() as path} if len(given) == 1:
                return self.part(path)
            case {"$text": str() as text, "of": [*paths]} if len(given) == 2 and all(isinstance(p, str) for p in paths):
                return self._text_of(text, paths)
            case {"$ask": _} | {"$run": _}:
                self.question(given)
                return Resolved(None)  # until a reader has answered
            case _:
                raise HandleInvalid(
                    f"{canonical_json(given)[:200]} is neither "
                    '{"$": "r1.name"} nor {"$text": "... {0}", "of": ["r1.name"]}'
                )

    def _text_of(self, text: str, paths: Sequence[str]) -> Resolved:
        parts = [self.part(path) for path in paths]
        missing = [place for place in _PLACE.findall(text) if int(place) >= len(parts)]
        if missing:
            raise HandleInvalid(f"the text has {{{missing[0]}}}, and `of` has {len(parts)} parts")
        # Each place is replaced once, and what is put there is not read again; `str.format` reaches attributes.
        made = _PLACE.sub(lambda place: as_text(parts[int(place[1])].value), text)
        label = joined(each.label for each in parts)
        return Resolved(made, () if label == OWN else (((), made, label),)).joined(self._made_of())

    # --- texts --------------------------------------------------------------------------------------------------------

    def rendered(self, text: str) -> tuple[str, Label]:
        """An answer with values in the place of the handles in it, and its label.

        What strangers can have written is quoted as code of Markdown, so that nothing in it is a link or an image.

        Raises:
            HandleInvalid: There is a handle that cannot be resolved.
        """
        own, parts, labels, at = [""], list[str](), list[Label](), 0
        for begin, end, given in _objects(text):
            part = self.resolved(given)
            own[-1] += text[at:begin]
            if part.strange:
                labels.append(part.label)
                parts.append(as_text(part.value))
                own.append("")
            else:
                own[-1] += as_text(part.value)
            at = end
        own[-1] += text[at:]
        return with_quoted(own, parts) if parts else own[0], joined(labels)


def _all(found: Iterable[Resolved]) -> tuple[tuple[Steps, Any, Label], ...]:
    return tuple(strange for each in found for strange in each.strange)


def _walked(held: Held, steps: Sequence[tuple[str, str, str]], path: str) -> Resolved:
    """The part of a result that steps lead to; with `[*]` a list."""
    found: list[tuple[Any, Steps]] = [(held.value, ())]
    many = False
    for name, place, quoted_name in steps:
        key = name or (json.loads(quoted_name) if quoted_name else "")
        found = [below for value, at in found for below in _below_step(value, at, key, place, path)]
        many = many or place == "*"
        if len(found) > _MOST_PARTS:
            raise HandleInvalid(f"{path[:80]!r} has more than {_MOST_PARTS} parts")
    parts = [_labelled(held, value, at) for value, at in found]
    if not many:
        return parts[0]
    parts = [each.below(place) for place, each in enumerate(parts)]
    return Resolved([each.value for each in parts], _all(parts))


def _labelled(held: Held, value: Any, at: Steps) -> Resolved:
    """A part of a result with the labels of the values and keys in it."""
    strange = list[tuple[Steps, Any, Label]]()
    for steps, each in _values(value):
        label = held.label_at((*at, *steps))
        if label != OWN:
            strange.append((steps, each, label))
    return Resolved(value, tuple(strange))


def _values(value: Any, at: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """The texts, numbers, truth values and nulls in JSON, and its keys. What is empty counts as a null."""
    match value:
        case Mapping() | list() if not value:
            yield at, None
        case Mapping():
            for key, each in value.items():
                yield (*at, key), key
                yield from _values(each, (*at, key))
        case list():
            for place, each in enumerate(value):
                yield from _values(each, (*at, place))
        case _:
            yield at, value


def _below_step(value: Any, at: Steps, key: str, place: str, path: str) -> Iterator[tuple[Any, Steps]]:
    if place == "*" and isinstance(value, list):
        yield from ((each, (*at, number)) for number, each in enumerate(value))
    elif place and place != "*" and isinstance(value, list) and -len(value) <= int(place) < len(value):
        yield value[int(place)], (*at, int(place) % len(value))
    elif not place and isinstance(value, Mapping) and key in value:
        yield value[key], (*at, key)
    else:
        raise HandleInvalid(f"there is no part {path[:80]!r}; see the outline of the result")


def _objects(text: str) -> Iterator[tuple[int, int, Any]]:
    """The handles in a text, each with its begin and end."""
    at = 0
    while (begun := _OBJECT.search(text, at)) is not None:
        try:
            given, end = json.JSONDecoder(strict=False).raw_decode(text, begun.start())
        except (ValueError, RecursionError):
            at = begun.end()
            continue
        if is_handle(given):
            yield begun.start(), end, given
        at = end


def opens_handle(text: str, begin: int) -> int:
    """The first place from `begin` on where a handle begins, or can begin when more text follows."""
    found = _MAY_OPEN.search(text, begin)
    return len(text) if found is None else found.start()


def as_text(value: Any) -> str:
    """A value as a text: a text itself, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
