"""Keeps `jsonschema` within bounds: it counts steps and matches patterns in linear time. It also reads OpenAPI's words.

This module loads `jsonschema`, which takes half a second, so `schema` imports it only when a schema is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]  # it has no types
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]  # it has no types
from pydantic_core import SchemaError, SchemaValidator, core_schema

from ..core import canonical_json

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]

_STEPS: Final = 50_000  # keywords that are checked for one value
_REFERENCE: Final = 5  # steps that count for following a reference
_LEFT: ContextVar[list[int] | None] = ContextVar("worldagent_schema_steps", default=None)


class TooMuch(Exception):
    """Checking took more steps than the limit for one value."""


@contextlib.contextmanager
def bounded() -> Generator[None]:
    """Count the steps of the checks in the block; too many raise `TooMuch`."""
    token = _LEFT.set([_STEPS])
    try:
        yield
    finally:
        _LEFT.reset(token)


def draft_of(schema: Mapping[str, Any]) -> Any:
    """Return the validator class of the draft that a schema names; 2020-12 if it names no known draft."""
    return _kept_in_bounds(validator_for({"$schema": str(schema.get("$schema"))}, default=Draft202012Validator))


def without_flags(schema: Any) -> Any:
    """Return a schema with OpenAPI 3.0's `exclusiveMinimum: true` as JSON Schema writes it, changed in place.

    Args:
        schema: The schema. One that names its draft is not changed, because an old draft writes it in this way, too.
    """
    left = [] if isinstance(schema, dict) and "$schema" in schema else [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
                if isinstance(part.get(exclusive), bool) and part.pop(exclusive) and bound in part:
                    part[exclusive] = part.pop(bound)
            left += part.values()
        elif isinstance(part, list):
            left += part
    return schema


@lru_cache(maxsize=16)
def _kept_in_bounds(draft: Any) -> Any:
    own: Mapping[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    given: Mapping[str, Keyword] = draft.VALIDATORS
    return extend(
        draft,
        validators={
            name: _counted(
                own.get(name, given[name]), _REFERENCE if name in ("$ref", "$dynamicRef", "$recursiveRef") else 1
            )
            for name in given
        },
    )


def _counted(keyword: Keyword, steps: int) -> Keyword:
    def check(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterable[Any]:
        left = _LEFT.get()
        if left is not None:
            left[0] -= steps
            if left[0] < 0:
                raise TooMuch
        if instance is None and schema.get("nullable") is True:  # OpenAPI 3.0, in which servers declare tools
            return ()
        return keyword(validator, rule, instance, schema) or ()

    return check


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern. A pattern that cannot be matched in linear time counts as matching."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.isinstance_python(text)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> SchemaValidator | None:
    # Python's engine can take unlimited time; this one cannot, but has no look-around and no back references.
    with contextlib.suppress(SchemaError):
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    return None


def _pattern(validator: Any, rule: str, instance: Any, _: Any) -> Iterable[Any]:
    if validator.is_type(instance, "string") and not matches(rule, instance):
        yield ValidationError("the pattern is not in it")


def _pattern_properties(validator: Any, rule: Mapping[str, Any], instance: Any, _: Any) -> Iterable[Any]:
    if validator.is_type(instance, "object"):
        for pattern, part in rule.items():
            for name, value in instance.items():
                if matches(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Mapping[str, Any]) -> Iterable[Any]:
    if not validator.is_type(instance, "object"):
        return
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", ())
    for name, value in instance.items():
        if name in declared or any(matches(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError("it is not declared", path=(name,))
        else:
            yield from validator.descend(value, rule, path=name)


def _unique_items(validator: Any, rule: Any, instance: Any, _: Any) -> Iterable[Any]:
    # Compared as texts, because comparing all pairs takes too long.
    if not rule or not validator.is_type(instance, "array"):
        return
    if len({canonical_json(_integral_floats_as_int(item)) for item in instance}) < len(instance):
        yield ValidationError("two items are equal")


def _integral_floats_as_int(value: Any) -> Any:
    """Replace floats such as 1.0 by integers, because JSON Schema treats them as equal."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _integral_floats_as_int(part) for name, part in value.items()}
        case list():
            return [_integral_floats_as_int(part) for part in value]
        case _:
            return value
