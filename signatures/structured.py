"""Answers whose JSON Schema the service enforces, for Signatures with an output that is not a text.

A service enforces less than JSON Schema has, and each another part of it. `enforceable` writes a schema in the part
that all have, whose answers are checked afterwards as all others are. Texts alone stay in the chat format, which
carries them as they are.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Any, Final

from dspy.adapters.utils import get_field_description_string, serialize_for_json
from pydantic import PydanticUserError, TypeAdapter

from .adapter import (
    RoleAdapter,
    Signature,
    answer_field,
    check_length,
    declared_schema,
    fields_in,
    further_fields,
)
from .calling import JsonReader
from .escape import escape_markers
from .streaming import FieldParser, JsonFieldParser


class Unenforceable(Exception):
    """No schema that all services take stands for this one. This exception never leaves the module."""


class StructuredAdapter(RoleAdapter):
    """The chat format with an answer that is one JSON object, which the service holds to its schema.

    The schema stands in the prompt too, since some services take it and do not enforce it.

    Args:
        escape: Escapes a rendered value.
    """

    def __init__(self, *, escape: Callable[[str], str] = escape_markers) -> None:
        super().__init__(escape=escape)
        # As texts: the garbage collector would look through their values again and again.
        self._schemas: weakref.WeakKeyDictionary[Signature, str | None] = weakref.WeakKeyDictionary()

    def schema(self, signature: Signature) -> str | None:
        """The schema of an answer as JSON; None if no service can enforce one, or if all outputs are texts."""
        shown = self._form(signature)
        if shown not in self._schemas:
            self._schemas[shown] = _schema_of(shown)
        return self._schemas[shown]

    def options(self, signature: Signature) -> dict[str, Any]:
        schema = self.schema(signature)
        if schema is None:
            return {}
        named = {"name": "answer", "schema": json.loads(schema), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}

    def parser(self, signature: Signature, field: str) -> FieldParser:
        return JsonFieldParser(field)

    def _render_system_message(self, shown: Signature, tools: Any) -> str:
        outputs = shown.output_fields
        schemas = [
            f"`{name}` is JSON that fits this schema: {json.dumps(_schema_of_field(info), ensure_ascii=False)}"
            for name, info in outputs.items()
            if info.annotation is not str and declared_schema(info) is None  # which is in its description
        ]
        return "\n\n".join(
            (
                f"Your input fields are:\n{get_field_description_string(shown.input_fields)}",
                f"Your output fields are:\n{get_field_description_string(outputs)}",
                *schemas,
                "Each input field follows a line with its name, such as "
                f"[[ ## {next(iter(shown.input_fields))} ## ]]. Answer with one JSON object that has exactly the keys "
                f"{', '.join(outputs)}, and with nothing else.",
                self.format_task_description(shown),
            )
        )

    def user_message_output_requirements(self, signature: Signature) -> str:
        return ""

    def format_assistant_message_content(
        self, signature: Signature, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        absent = frozenset() if missing_field_message else further_fields(signature) - outputs.keys()
        shown = {
            name: serialize_for_json(outputs.get(name, missing_field_message))
            for name in signature.output_fields
            if name not in absent
        }
        return self.sent(json.dumps(shown, ensure_ascii=False))

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        """Read the object, whatever is around it. A service that enforces nothing can answer in the chat format.

        Raises:
            Unfit, Unreadable: It has neither form.
        """
        check_length(completion)
        reader = JsonReader(repairs=not self._truncated)
        given: Any = None
        with suppress(ValueError):
            given = reader.read(completion[completion.find("{") : completion.rfind("}") + 1], repair=False)
        if not isinstance(given, dict) or not signature.output_fields.keys() & given.keys():
            return super().parse(signature, completion)
        told = {name: given[name] for name in signature.output_fields if name in given}
        if "null" in completion and (schema := self.schema(signature)) is not None:
            parts = json.loads(schema)["properties"]
            read = {name: without_nulls(value, parts[name]) for name, value in told.items()}
            told = {name: value for name, value in read.items() if value is not LEFT_OUT}
        return fields_in(told, signature, reader)


def _schema_of(shown: Signature) -> str | None:
    outputs = shown.output_fields
    if all(info.annotation is str for info in outputs.values()):
        return None
    # They have a default for answers that are calls, which the schema does not bind.
    needed = {answer_field(shown)} | further_fields(shown)
    needed |= {name for name, info in outputs.items() if info.is_required()}
    writer = _Writer()
    try:
        parts = {name: writer.field(_schema_of_field(info)) for name, info in outputs.items()}
    except (Unenforceable, PydanticUserError):
        return None
    return json.dumps(_object(parts, needed), ensure_ascii=False)


def _schema_of_field(info: Any) -> dict[str, Any]:
    declared: dict[str, Any] | None = declared_schema(info)
    return TypeAdapter(info.annotation).json_schema() if declared is None else declared


# --- schemas that services take ---------------------------------------------------------------------------------------

_DEEPEST: Final = 8  # levels of a field's schema: OpenAI takes 10 of an answer
_MOST: Final = 1000  # parts and allowed values of an answer's schema
_LONGEST: Final = 15_000  # characters of names, allowed values and descriptions in it
_IN_WORDS: Final = (
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties"),
    *("maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
"""The keywords that not every service takes, and that a description can say."""

_CHOICES: Final = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
_PLAIN: Final = frozenset({"properties", "required", "items", "additionalProperties"})
_BEYOND: Final = frozenset(
    {"not", "if", "dependentSchemas", "dependentRequired", "dependencies", "patternProperties", "propertyNames"}
    | {"prefixItems", "contains", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}
    | {"nullable"}  # of OpenAPI
)
"""The keywords that no description can say. What is neither a keyword of JSON Schema is only an annotation."""

_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
LEFT_OUT: Final = {"type": "null", "description": "if it is left out"}
"""What a property that can be missing is instead."""


def enforceable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with only the keywords that all services take; its objects have their declared properties and no other.

    A property that can be missing is `null` there, see `without_nulls`. Bounds and patterns go into the descriptions,
    so that an answer has to be checked against the schema itself.

    Raises:
        Unenforceable: There is none: it allows any value or any key somewhere, is recursive, or is too large.
    """
    return _Writer().field(schema)


class _Writer:
    """Writes the schemas of one answer. References are followed, so a short schema can be a large one."""

    def __init__(self) -> None:
        self._root: Mapping[str, Any] = {}
        self._parts, self._characters = _MOST, _LONGEST

    def field(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        self._root = schema
        try:
            return self._written(schema, ())
        except RecursionError:
            raise Unenforceable from None

    def _count(self, *texts: str, parts: int = 1) -> None:
        self._parts -= parts
        self._characters -= sum(map(len, texts))
        if self._parts < 0 or self._characters < 0:
            raise Unenforceable

    def _written(self, schema: Any, above: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or depth > _DEEPEST or not _BEYOND.isdisjoint(schema):
            raise Unenforceable
        about = _about(schema)
        self._count(*about.values())
        chosen = [name for name in _CHOICES if name in schema]
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not chosen:
            return _any_of([self._of_kind(str(kind), schema, above, depth) for kind in kinds]) | about
        if len(chosen) > 1 or not _PLAIN.isdisjoint(schema):  # both hold
            raise Unenforceable
        made = self._chosen(chosen[0], schema[chosen[0]], above, depth)
        allowed = {*kinds, "integer"} if "number" in kinds else {*kinds}
        if kinds != [None] and not all(part.get("type") in allowed for part in made.get("anyOf", [made])):
            raise Unenforceable
        return made | about

    def _chosen(self, keyword: str, given: Any, above: tuple[str, ...], depth: int) -> dict[str, Any]:
        if keyword == "$ref":
            if given in above:  # it has no end
                raise Unenforceable
            return self._written(_target_of(str(given), self._root), (*above, given), depth)
        if keyword in ("enum", "const"):
            values = given if keyword == "enum" else [given]
            self._count(*map(str, values), parts=len(values))
            return _one_of(values)
        if keyword == "allOf" and len(given) > 1:
            raise Unenforceable
        return _any_of([self._written(each, above, depth) for each in given])

    def _of_kind(self, kind: str, schema: Mapping[str, Any], above: tuple[str, ...], depth: int) -> dict[str, Any]:
        if kind == "array":
            return {"type": kind, "items": self._written(schema.get("items"), above, depth + 1)}
        if kind != "object":
            if kind not in _KINDS.values():
                raise Unenforceable
            return {"type": kind}
        properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
        if schema.get("additionalProperties", not properties) is not False or required - properties.keys():
            raise Unenforceable  # its keys are not known
        self._count(*properties, parts=0)
        parts = {name: self._written(part, above, depth + 1) for name, part in properties.items()}
        return _object(parts, required)


def _about(schema: Mapping[str, Any]) -> dict[str, str]:
    """Its description, with the bounds that not every service takes."""
    bounds = [f"{name}: {json.dumps(schema[name], ensure_ascii=False)}" for name in _IN_WORDS if name in schema]
    said = [str(schema["description"])] if schema.get("description") else []
    about = " ".join([*said, f"({', '.join(bounds)})"] if bounds else said)
    return {"description": about} if about else {}


def _object(parts: Mapping[str, Any], required: Container[str | None]) -> dict[str, Any]:
    shown = {
        name: part if name in required or _takes_null(part) else _any_of([part, LEFT_OUT])
        for name, part in parts.items()
    }
    return {"type": "object", "properties": shown, "required": list(shown), "additionalProperties": False}


def _any_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if not parts:
        raise Unenforceable
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _one_of(values: list[Any]) -> dict[str, Any]:
    """Values by type: services want the type beside them."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        kind = _KINDS.get(type(value))
        if kind is None:
            raise Unenforceable
        by_kind.setdefault(kind, []).append(value)
    return _any_of(
        [{"type": "null"} if kind == "null" else {"type": kind, "enum": each} for kind, each in by_kind.items()]
    )


def _takes_null(schema: Mapping[str, Any]) -> bool:
    """Whether a schema that was written here allows `null`."""
    return schema.get("type") == "null" or any(map(_takes_null, schema.get("anyOf", ())))


def _target_of(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    if not reference.startswith("#/"):
        raise Unenforceable
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping) or name not in found:
            raise Unenforceable
        found = found[name]
    return found


# --- values -----------------------------------------------------------------------------------------------------------

_STEPS: Final = 50_000  # of reading a value: 30 ms
_MISFIT: Final = object()


def without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value without the properties that are `null` because they are left out.

    Args:
        value: The value. One that does not fit the schema is returned unchanged, for others to report; if it is `null`,
            it is left out.
        schema: The schema that `enforceable` wrote.

    Returns:
        The value; `LEFT_OUT` if it is left out itself.
    """
    read = _read(value, schema, [_STEPS])
    if read is not _MISFIT:
        return read
    return LEFT_OUT if value is None else value


def _read(value: Any, schema: Mapping[str, Any], left: list[int]) -> Any:
    left[0] -= 1 + len(schema.get("properties", ()))
    if left[0] < 0:
        return _MISFIT
    if "anyOf" in schema:
        reads = (_read(value, part, left) for part in schema["anyOf"])
        return next((read for read in reads if read is not _MISFIT), _MISFIT)
    kind = schema["type"]
    if kind == "object" and isinstance(value, dict):
        return _read_object(value, schema["properties"], left)
    if kind == "array" and isinstance(value, list):
        items = [_read(each, schema["items"], left) for each in value]
        return _MISFIT if any(each is _MISFIT for each in items) else items
    fits = kind == _KINDS.get(type(value)) or (kind == "number" and type(value) is int)
    if not fits or value not in schema.get("enum", [value]):
        return _MISFIT
    return LEFT_OUT if schema == LEFT_OUT else value


def _read_object(value: Mapping[str, Any], parts: Mapping[str, Any], left: list[int]) -> Any:
    needed = (name for name in parts.keys() - value.keys() if LEFT_OUT not in parts[name].get("anyOf", ()))
    if not value.keys() <= parts.keys() or next(needed, None) is not None:
        return _MISFIT
    told = {}
    for name, each in value.items():
        read = _read(each, parts[name], left)
        if read is _MISFIT:
            return _MISFIT
        if read is not LEFT_OUT:
            told[name] = read
    return told
