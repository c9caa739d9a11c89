"""Answers whose JSON Schema the service enforces, for Signatures with an output that is not a text.

A service enforces less than JSON Schema has, and each another part of it. `enforceable` writes a schema in the part
that all have, whose answers are checked afterwards as all others are. Texts alone stay in the chat format, which
carries them as they are.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
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
    unfenced,
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
        """Read the object. A service that enforces nothing can answer in another form, which the chat format reads.

        Raises:
            Unfit, Unreadable: It has neither form.
        """
        check_length(completion)
        reader = JsonReader(repairs=not self._truncated)
        given: Any = None
        with suppress(ValueError):
            given = reader.read(unfenced(completion), repair=False)
        if not isinstance(given, dict) or not signature.output_fields.keys() & given.keys():
            return super().parse(signature, completion)
        fields = {name: info for name, info in signature.output_fields.items() if name in given}
        told = {
            name: value
            for name, info in fields.items()
            if (value := given[name]) is not None or info.is_required() or takes_null(_schema_of_field(info))
        }
        if "null" in completion:
            told = {name: without_nulls(value, _schema_of_field(fields[name])) for name, value in told.items()}
        return fields_in(told, signature, reader)


def _schema_of(shown: Signature) -> str | None:
    outputs = shown.output_fields
    if all(info.annotation is str for info in outputs.values()):
        return None
    properties: dict[str, Any] = {}
    # They have a default for answers that are calls, which the schema does not bind.
    needed = {answer_field(shown)} | further_fields(shown)
    try:
        for name, info in outputs.items():
            fitting = enforceable(_schema_of_field(info))
            always = name in needed or info.is_required() or takes_null(fitting)
            properties[name] = fitting if always else _or_null(fitting)
    except (Unenforceable, PydanticUserError):
        return None
    return json.dumps(_object(properties), ensure_ascii=False)


def _schema_of_field(info: Any) -> dict[str, Any]:
    declared: dict[str, Any] | None = declared_schema(info)
    return TypeAdapter(info.annotation).json_schema() if declared is None else declared


# --- schemas that services take ---------------------------------------------------------------------------------------

_DEEPEST: Final = 8  # levels of a field's schema: OpenAI takes 10 of an answer
_MOST: Final = 300  # parts of it
_IN_WORDS: Final = (
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
"""The keywords that not every service takes, and that a description can say."""

_KNOWN: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", *_IN_WORDS}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions"}
)
_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def enforceable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with only the keywords that all services take; its objects have their declared properties and no other.

    A property that can be missing is `null` there, see `without_nulls`. Bounds and patterns go into the descriptions,
    so that an answer has to be checked against the schema itself.

    Raises:
        Unenforceable: There is none: it allows any value or any key somewhere, is recursive, or is too large.
    """
    return _Writer(schema).written(schema, ())


class _Writer:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST

    def written(self, schema: Any, above: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._left < 0:
            raise Unenforceable
        keywords = schema.keys() - _KNOWN
        about = _about(schema)
        if keywords == {"$ref"}:
            name = str(schema["$ref"])
            if name in above:  # it has no end
                raise Unenforceable
            return self.written(target_of(name, self._root), (*above, name), depth) | about
        if keywords in ({"anyOf"}, {"oneOf"}, {"allOf"}):
            choices = schema[next(iter(keywords))]
            if schema.keys() & {"properties", "items"} or not choices or ("allOf" in keywords and len(choices) > 1):
                raise Unenforceable
            parts = [self.written(each, above, depth) for each in choices]
            return (parts[0] if len(parts) == 1 else {"anyOf": parts}) | about
        if keywords in ({"enum"}, {"const"}):
            return _one_of(schema["enum"] if "enum" in schema else [schema["const"]]) | about
        if keywords:
            raise Unenforceable
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            parts = [self.written({**schema, "type": each}, above, depth) for each in kind]
            return parts[0] if len(parts) == 1 else {"anyOf": parts}
        return self._of_kind(str(kind), schema, above, depth) | about

    def _of_kind(self, kind: str, schema: Mapping[str, Any], above: tuple[str, ...], depth: int) -> dict[str, Any]:
        if kind == "array":
            return {"type": kind, "items": self.written(schema.get("items"), above, depth + 1)}
        if kind != "object":
            if kind not in _KINDS.values():
                raise Unenforceable
            return {"type": kind}
        properties = schema.get("properties") or {}
        if schema.get("additionalProperties", not properties) is not False:
            raise Unenforceable  # its keys are not known
        required = schema.get("required") or ()
        shown = {name: self.written(part, above, depth + 1) for name, part in properties.items()}
        optional = {name for name in shown if name not in required and not takes_null(shown[name])}
        return _object({name: _or_null(part) if name in optional else part for name, part in shown.items()})


def _about(schema: Mapping[str, Any]) -> dict[str, str]:
    """Its description, with the bounds that not every service takes."""
    bounds = [f"{name}: {json.dumps(schema[name], ensure_ascii=False)}" for name in _IN_WORDS if name in schema]
    said = [str(schema["description"])] if schema.get("description") else []
    about = " ".join([*said, f"({', '.join(bounds)})"] if bounds else said)
    return {"description": about} if about else {}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(properties)
    return {"type": "object", "properties": shown, "required": list(shown), "additionalProperties": False}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _one_of(values: Any) -> dict[str, Any]:
    """Values by type: services want the type beside them."""
    by_kind: dict[str, list[Any]] = {}
    for value in values if isinstance(values, list) else ():
        kind = _KINDS.get(type(value))
        if kind is None:
            raise Unenforceable
        by_kind.setdefault(kind, []).append(value)
    if not by_kind:
        raise Unenforceable
    parts = [{"type": "null"} if kind == "null" else {"type": kind, "enum": each} for kind, each in by_kind.items()]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def target_of(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference in a schema stands for.

    Raises:
        Unenforceable: It is not in this schema.
    """
    found: Any = root
    if not reference.startswith("#/"):
        raise Unenforceable
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping) or name not in found:
            raise Unenforceable
        found = found[name]
    return found


# --- values -----------------------------------------------------------------------------------------------------------


def without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value without the properties that are `null` in place of missing, see `enforceable`."""
    return _without(value, schema, schema)


def _without(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        items: Any = next((each["items"] for each in _choices(schema, root) if "items" in each), {})
        return [_without(each, items, root) for each in value]
    if not isinstance(value, dict):
        return value
    objects = [each for each in _choices(schema, root) if "properties" in each]
    fitting = next((each for each in objects if value.keys() <= each["properties"].keys()), None)
    if fitting is None:
        return value
    parts, required = fitting["properties"], fitting.get("required") or ()
    return {
        name: _without(each, parts[name], root)
        for name, each in value.items()
        if each is not None or name in required or takes_null(parts[name], root)
    }


def takes_null(schema: Any, root: Mapping[str, Any] | None = None) -> bool:
    """Whether a schema allows `null`."""
    return any(
        not each
        or each.get("type") == "null"
        or (isinstance(each.get("type"), list) and "null" in each["type"])
        or None in (each.get("enum") or ())
        or ("const" in each and each["const"] is None)
        for each in _choices(schema, schema if root is None else root)
    )


def _choices(schema: Any, root: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The schemas of which a value fits one, without references."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    if "$ref" in schema:
        with suppress(Unenforceable):
            yield from _choices(target_of(str(schema["$ref"]), root), root, depth + 1)
        return
    parts = [part for name in ("anyOf", "oneOf", "allOf") for part in schema.get(name) or ()]
    if not parts:
        yield schema
    for part in parts:
        yield from _choices(part, root, depth + 1)
