"""The arguments that a function declares: whether it can have an argument, and what it receives at a dotted path.

A function does not receive everything in a call. A key that it does not declare may be dropped, and a key that is spelt
almost like a declared one may be read in its place. Approving rules therefore consider declared keys only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product
from typing import Any, Final
from urllib.parse import unquote

from pydantic import BaseModel, PydanticUserError

_DEEPEST = 50  # references that are followed in a chain
_MAX_WAYS: Final = 64  # alternatives of one schema that are considered
_OTHER_KEYWORDS: Final = frozenset(
    {"patternProperties", "unevaluatedProperties", "propertyNames", "dependentSchemas", "dependencies"}
    | {"if", "not", "$dynamicRef", "$recursiveRef"}
)
"""Keywords about keys that this module does not evaluate: with one of them, only `properties` count as declared."""

Part = Mapping[str, Any]


@lru_cache(maxsize=1024)
def schema_of(params: type[BaseModel]) -> Part | None:
    """Return the JSON Schema of arguments as the gate sees them: serialized, with serialization aliases.

    Returns:
        The schema, which must not be changed; None if the params have none.
    """
    try:
        return params.model_json_schema(mode="serialization")
    except PydanticUserError:
        return None


@lru_cache(maxsize=1024)
def declared_keys(params: type[BaseModel]) -> frozenset[str]:
    """Return the keys that params declare, at any depth."""
    found, parts = set[str](), list[Any]([schema_of(params)])
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            properties = part.get("properties")
            found.update(properties if isinstance(properties, Mapping) else ())
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return frozenset(found)


def received(arguments: Mapping[str, Any], path: str, schema: Part | None) -> list[Any]:
    """Return the value at a dotted path, if it is certain that this value is the one the function receives.

    It is certain if each step is a declared key, or a key of an object that declares no keys, and no other key could be
    read in its place. A key that contains dots counts only if it is declared under exactly that name.

    Args:
        arguments: The params as JSON, validated by `schema`.
        path: A path as in `Rule.arguments`.
        schema: The result of `schema_of`; None if nothing is known of the params.

    Returns:
        A list with the value, or an empty list if it is not certain.
    """
    if schema is None:
        return []
    value: Any = arguments
    steps, place = path.split("."), [[schema]]
    while steps:
        if not isinstance(value, Mapping):
            return []
        ways = [way for each in place for way in _ways(each, schema) if can_be(way, value)]
        sizes = [size for size in range(1, len(steps) + 1) if ".".join(steps[:size]) in value]
        if not ways or len(ways) > _MAX_WAYS or len(sizes) != 1:
            return []
        key = ".".join(steps[: sizes[0]])
        found = [_below(way, key, dotted=sizes[0] > 1) for way in ways]
        if not all(found) or any(_competes(other, steps, way) for way in ways for other in value if other != key):
            return []
        value, steps, place = value[key], steps[sizes[0] :], found
    return [value]


def _ways(schemas: Sequence[Any], root: Part, deep: int = _DEEPEST) -> list[list[Part]]:
    """Return the alternatives by which schemas can describe an object; all parts of an alternative must hold."""
    if not schemas:
        return [[]]
    first, *others = schemas
    if first is True:
        first = {}
    # References in a part with an `$id` are relative to that part, and are not followed.
    if not isinstance(first, Mapping) or not deep or ("$id" in first and first is not root):
        return []
    more: list[Any] = [*first.get("allOf", ())]
    if "$ref" in first:
        more.append(_referred(str(first["$ref"]), root))
    choices = [first[key] for key in ("anyOf", "oneOf") if key in first]
    combined = product(_ways(others, root, deep), *choices)
    own: Iterator[list[Part]] = (
        [first, *rest, *each]
        for rest, *chosen in islice(combined, _MAX_WAYS + 1)
        for each in _ways([*more, *chosen], root, deep - 1)
    )
    return list(islice(own, _MAX_WAYS + 1))


def _referred(reference: str, root: Part) -> Any:
    """Resolve a reference within the schema; return False, a schema that nothing fits, for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return False
    found: Any = root
    for written in reference.split("/")[1:]:
        step = unquote(written).replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or step not in found:
            return False
        found = found[step]
    return found


def can_be(way: Sequence[Part], value: Mapping[str, Any]) -> bool:
    """Whether this alternative can describe a valid object, by its type, required keys and constants."""
    for part in way:
        kind = part.get("type", "object")
        if kind != "object" and (isinstance(kind, str) or "object" not in kind):
            return False
        if any(key not in value for key in part.get("required", ())):
            return False
        for key, declared in part.get("properties", {}).items():
            if key in value and isinstance(declared, Mapping) and not _is_allowed(value[key], declared):
                return False
    return True


def _is_allowed(value: Any, declared: Part) -> bool:
    if "const" in declared:
        return bool(value == declared["const"])
    return value in declared["enum"] if "enum" in declared else True


def _declares(way: Sequence[Part], key: str) -> bool:
    return any(key in part.get("properties", ()) for part in way)


def _is_open(way: Sequence[Part]) -> bool:
    """Whether an object can have undeclared keys: it is a mapping, or its schema allows more properties."""
    return all("properties" not in part or "additionalProperties" in part for part in way) and not any(
        _OTHER_KEYWORDS & part.keys() for part in way
    )


def _below(way: Sequence[Part], key: str, *, dotted: bool) -> list[Any]:
    """Return the schemas of the value of a key; empty if it is not certain that the function receives the key."""
    if _declares(way, key):
        return [part["properties"][key] for part in way if key in part.get("properties", ())]
    if dotted or not _is_open(way):
        return []
    return [part.get("additionalProperties", True) for part in way]


def _competes(key: str, steps: Sequence[str], way: Sequence[Part]) -> bool:
    """Whether a function may read this key in place of the one that the steps lead to.

    That is possible if the key is not declared, because it may be an alias, or if the two keys differ only in case:
    some JSON decoders, such as Go's, ignore case.
    """
    if _declares(way, key):
        return False
    if not _is_open(way):
        return True
    folded = key.casefold()
    return any(folded == ".".join(steps[:size]).casefold() for size in range(1, len(steps) + 1))


def may_have(params: type[BaseModel], path: str) -> bool:
    """Whether arguments can have a value at a dotted path; also true if the params do not exclude it.

    Args:
        params: The params that a function declares.
        path: A path as in `Rule.arguments`.
    """
    if params.model_config.get("extra") == "allow":
        return True
    schema = schema_of(params)
    if schema is None:
        return True
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
    # An object without a title is a mapping with any keys; one with a title is a model, here without fields.
    others = schema.get("additionalProperties", "title" not in schema)
    return others is not False and _may(others, rest, parts, deep - 1)
