"""Whether a function can have an argument that a rule is about, by what its params declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_DEEPEST = 50  # of references that lead to each other


def may_have(params: type[BaseModel], path: str) -> bool:
    """Whether there may be something at a dotted path; where the params leave it open, there may.

    Args:
        params: What a function declares.
        path: As in `Rule.arguments`.
    """
    if params.model_config.get("extra") == "allow":
        return True
    schema = params.model_json_schema()
    return path in schema.get("properties", {}) or _may(schema, path.split("."), schema.get("$defs", {}), _DEEPEST)


def _may(schema: Any, steps: list[str], parts: Mapping[str, Any], deep: int) -> bool:
    if not steps or not isinstance(schema, Mapping) or not deep:
        return True
    if "$ref" in schema:
        return _may(parts.get(str(schema["$ref"]).rpartition("/")[2]), steps, parts, deep - 1)
    ways = [way for key in ("anyOf", "oneOf", "allOf") for way in schema.get(key, ())]
    if ways:
        return any(_may(way, steps, parts, deep - 1) for way in ways)
    match schema.get("type"):
        case "object":
            return _in_object(schema, steps, parts, deep)
        case "array":
            return _may(schema.get("items"), steps, parts, deep - 1)
        case str():
            return False
        case _:
            return True


def _in_object(schema: Mapping[str, Any], steps: list[str], parts: Mapping[str, Any], deep: int) -> bool:
    first, *rest = steps
    declared = schema.get("properties")
    if declared is not None and first in declared:
        return _may(declared[first], rest, parts, deep - 1)
    if declared is not None:
        return schema.get("additionalProperties", False) is not False
    # One without a title is any mapping; a title is that of a model, here of one without fields.
    others = schema.get("additionalProperties", "title" not in schema)
    return others is not False and _may(others, rest, parts, deep - 1)


__all__ = ["may_have"]
