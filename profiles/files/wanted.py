"""Describes in words which values a key accepts, for remedies. It reads the schema, so that both agree."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from .keys import NAME, NOT_BLANK, profile_schema

_TEXTS: Mapping[str, str] = {
    "boolean": "true or false",
    "object": "a mapping of keys and values",
    "null": "null",
}


def wanted(path: tuple[str | int, ...]) -> str:
    """Describe the values that a place in a file accepts."""
    node = _node(path)
    return _words(node) if node is not None else "what the schema says"


def keys_of(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that a mapping at this place accepts. Empty if it is not a mapping, or if its keys are names."""
    node = _node(path)
    for each in _choices(node) if node is not None else ():
        if "properties" in each and "additionalProperties" in each:
            return tuple(each["properties"])
    return ()


@cache
def _schema() -> dict[str, Any]:
    return profile_schema()


def _node(path: tuple[str | int, ...]) -> dict[str, Any] | None:
    node: dict[str, Any] | None = _schema()
    for part in path:
        node = next((found for each in _choices(node or {}) if (found := _below(each, part)) is not None), None)
    return node


def _below(node: Mapping[str, Any], part: str | int) -> dict[str, Any] | None:
    if isinstance(part, int):
        found = node.get("items")
    else:
        found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _choices(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return [_schema()["$defs"][node["$ref"].rpartition("/")[2]]]
    return [choice for each in node["anyOf"] for choice in _choices(each)] if "anyOf" in node else [node]


def _words(node: Mapping[str, Any]) -> str:
    choices = [each for each in _choices(node) if each.get("type") != "null"]
    return " or ".join(dict.fromkeys(map(_one, choices)))


def _one(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if node.get("pattern") == NOT_BLANK:
        return "a text with more than blanks"
    if node.get("pattern") == NAME:
        return "1 to 64 letters, digits, '_' and '-'"
    match node.get("type"):
        case "string":
            return "a text of 1 or more characters" if node.get("minLength") else "a text"
        case "array":
            return f"a list, each item {_words(node.get('items', {}))}"
        case "integer" | "number" as kind:
            return ("a whole number" if kind == "integer" else "a number") + _bounds(node)
        case kind:
            return _TEXTS.get(str(kind), "what the schema says")


def _bounds(node: Mapping[str, Any]) -> str:
    high = node.get("maximum")
    if "exclusiveMinimum" in node:
        return f" above {node['exclusiveMinimum']}" + (f" and at most {high}" if high is not None else "")
    return f" from {node['minimum']}" + (f" to {high}" if high is not None else " on") if "minimum" in node else ""


__all__ = ["keys_of", "wanted"]
