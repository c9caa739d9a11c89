"""Whether the schema that a host publishes for a tool takes a value, within bounds: a host may publish anything.

Of JSON Schema those keywords are looked at with which the contract can be said. They are the library's, each call of
them counted: references can branch so that they never come to an end. Patterns are left alone, since a regular
expression can take for ever too, and neither Ctrl-C nor a time limit ends it. What the schemas must take is in
`_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from .._outcomes import Failed

_PARTS: Final = 1000  # values and keys; the contract's schemas have some thirty
_LENGTH: Final = 64 * 1024  # characters of all texts
_STEPS: Final = 10_000  # of all calls of one schema; the contract's take some hundred
_KEYWORDS: Final = (
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "if",
    "maxLength",
    "maxProperties",
    "minLength",
    "minProperties",
    "not",
    "oneOf",
    "properties",
    "propertyNames",
    "required",
    "type",
)
# With these a part of a schema would choose other rules than ours, or refer to what is not in it.
_ELSEWHERE: Final = ("$schema", "$id", "id")
_REMEDY: Final = "publish the schema of docs/role-host.md"

Keyword = Callable[[Any, Any, Any, Any], Any]


class ToolSchema:
    """The input schema of a tool.

    Args:
        tool: The tool.
        schema: What it publishes.

    Raises:
        Failed: The schema is none, or too large.
    """

    def __init__(self, tool: str, schema: object) -> None:
        self._tool = tool
        self._left = _STEPS
        self._parts = self._length = 0
        self._keys: set[str] = set()
        if not isinstance(schema, Mapping):
            raise self._none()
        self._validator = self._compiled(self._copied(schema))

    def has_key(self, key: str) -> bool:
        """Whether an object anywhere in it has this key."""
        return key in self._keys

    def takes(self, value: Mapping[str, Any]) -> bool:
        """Whether `value` fits.

        Raises:
            Failed: The schema is none, or does not come to an end.
        """
        try:
            return bool(self._validator.is_valid(value))
        except (_TooLong, RecursionError):
            problem = Failed(f"the schema of {self._tool} does not come to an end", _REMEDY)
        except self._wrong:
            problem = self._none()
        raise problem

    def _none(self) -> Failed:
        return Failed(f"the schema of {self._tool} is no JSON Schema", _REMEDY)

    def _copied(self, part: object) -> Any:
        self._parts += 1
        if isinstance(part, str):
            self._length += len(part)
        if self._parts > _PARTS or self._length > _LENGTH:
            told = f"{_PARTS:,} parts or {_LENGTH // 1024} KiB"
            raise Failed(f"the schema of {self._tool} has more than {told}", _REMEDY)
        if isinstance(part, Mapping):
            self._keys |= part.keys()
            self._length += sum(map(len, part))
            return {key: self._copied(value) for key, value in part.items() if key not in _ELSEWHERE}
        return [self._copied(value) for value in part] if isinstance(part, list) else part

    def _compiled(self, schema: dict[str, Any]) -> Any:
        # Here, because only this check needs it.
        from jsonschema import Draft202012Validator, exceptions  # type: ignore[import-untyped]  # it has no types
        from jsonschema.validators import create  # type: ignore[import-untyped]  # it has no types
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # A keyword of another kind fails as Python does where it is used: [] has no `items`, "x" is not above 3.
        plain = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
        self._wrong: tuple[type[Exception], ...] = (exceptions.UnknownType, Unresolvable, *plain)
        known: Mapping[str, Keyword] = Draft202012Validator.VALIDATORS
        made: Any = cast("Any", create)(
            meta_schema=Draft202012Validator.META_SCHEMA,
            validators={name: self._counted(name, known[name]) for name in _KEYWORDS},
            type_checker=Draft202012Validator.TYPE_CHECKER,
        )
        return made(schema, registry=Registry())

    def _counted(self, name: str, keyword: Keyword) -> Keyword:
        def look(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._left -= 1 + (len(value) if isinstance(value, (str, list, dict)) else 0)
            if self._left < 0:
                raise _TooLong
            if name == "$ref" and not str(value).startswith("#"):
                raise ValueError("it refers to what is elsewhere")
            if name != "additionalProperties" or "patternProperties" not in schema:
                yield from keyword(validator, value, instance, schema) or ()

        return look


class _TooLong(Exception):
    """More steps were taken than a sound schema needs."""


__all__ = ["ToolSchema"]
