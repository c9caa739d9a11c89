"""Restricts a JSON Schema to what llama.cpp supports in a grammar, with a limit for each text and list.

Output under such a grammar is valid. A keyword that the grammar would ignore makes a schema unusable.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TEXT: Final = 120  # the limit of characters of a text in the arguments
_MOST_ITEMS: Final = 4
_DEEPEST: Final = 5  # the limit of levels of a schema; a recursive one has no end
_BOUNDS: Final[Mapping[str, Any]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "additionalProperties", "type"}
)
_ALONE: Final = frozenset({"$ref", "const", "enum", "anyOf", "oneOf"})  # keywords that are only supported alone
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength"}),
    "integer": frozenset(_BOUNDS),
    "number": frozenset(_BOUNDS),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required"}),
}


class GrammarUnfit(Exception):
    """No grammar can enforce the schema. This exception never leaves the engine."""


def bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose values are all valid for `schema`, for the arguments of a tool or an answer.

    Optional properties keep their defaults, unless all are optional.

    Raises:
        GrammarUnfit: There is none, for example because a required text must match a pattern.
    """
    root = {"type": "object", **schema}
    return _bounded(root, root, 0)


def object_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    shown = dict(properties)
    return {"type": "object", "properties": shown, "required": list(shown), "additionalProperties": False}


def _bounded(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > _DEEPEST or schema is False:
        raise GrammarUnfit
    if schema is True or not schema:
        return {"type": "string", "maxLength": _TEXT}
    keywords = schema.keys() - _ANNOTATIONS
    if len(keywords) == 1 and (keyword := next(iter(keywords))) in _ALONE:
        given = schema[keyword]
        if keyword in ("const", "enum"):
            return {"enum": [given] if keyword == "const" else list(given)}
        return _first_fitting([_target(given, root)] if keyword == "$ref" else given, root, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _first_fitting([{**schema, "type": each} for each in kind], root, depth)
    if kind not in _KEYWORDS or keywords - _KEYWORDS[kind]:
        raise GrammarUnfit
    if kind == "object":
        return _bounded_object(schema, root, depth)
    own = {"type": kind, **{name: schema[name] for name in keywords}}
    if kind == "string":
        _put_end(own, "minLength", "maxLength", _TEXT)
    if kind == "array":
        _put_end(own, "minItems", "maxItems", _MOST_ITEMS)
        own["items"] = _bounded(own.get("items", True), root, depth + 1)
    return own


def _put_end(own: dict[str, Any], least: str, most: str, limit: int) -> None:
    own[most] = min(own.get(most, limit), limit)
    if own.get(least, 0) > own[most]:
        raise GrammarUnfit


def _bounded_object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    if not required <= properties.keys():
        raise GrammarUnfit
    kept: dict[str, Any] = {}
    for name, each in properties.items():
        if required and name not in required:
            continue
        try:
            kept[name] = _bounded(each, root, depth + 1)
        except GrammarUnfit:
            if required:
                raise
    return object_of(kept)


def _first_fitting(options: Sequence[Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The first usable option. `null` is tried last."""
    for option in sorted(options, key=lambda each: isinstance(each, Mapping) and each.get("type") == "null"):
        try:
            return _bounded(option, root, depth + 1)
        except GrammarUnfit:
            continue
    raise GrammarUnfit


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping) or name not in found:
            raise GrammarUnfit
        found = found[name]
    return found


def is_within(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether numbers are within their limits, which a grammar does not enforce for fractions."""
    match schema.get("type"):
        case "object":
            return all(is_within(each, value[name]) for name, each in schema["properties"].items())
        case "array":
            return all(is_within(schema["items"], each) for each in value)
        case "integer" | "number":
            within = all(_BOUNDS[name](value, schema[name]) for name in _BOUNDS.keys() & schema.keys())
            return within and math.isfinite(value)
        case _:
            return True


__all__ = ["GrammarUnfit", "bounded", "is_within", "object_of"]
