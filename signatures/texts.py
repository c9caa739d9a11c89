"""Visits every text inside a value of any type, and makes the same value with other texts.

This module knows nothing of roles: the caller decides how a text changes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

Change = Callable[[str, bool], str]
"""Gets a text, and whether it is the key of a mapping or inside one."""

_WITHOUT_TEXT = (
    *(type(None), bool, int, float, complex, Decimal, Fraction),
    *(date, time, timedelta, tzinfo, UUID, type),
    Enum,  # its texts belong to the program, not to the model
)
_STATE_OF_MODELS = ("__dict__", "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__")


def fixed_in(schema: Any) -> Iterator[str]:
    """The texts that a JSON Schema gives its values: names of properties, and the texts of `enum` and `const`."""
    if isinstance(schema, Mapping):
        given = [*schema.get("properties", ()), *schema.get("enum", ()), schema.get("const")]
        yield from (each for each in given if isinstance(each, str))
    if isinstance(schema, Mapping | list | tuple):
        for each in schema.values() if isinstance(schema, Mapping) else schema:
            yield from fixed_in(each)


def with_texts(value: Any, change: Change, fixed: frozenset[str] = frozenset()) -> Any:
    """Replace every text in a value, including keys of mappings.

    It visits mappings, collections, models with their extra and private attributes, bytes, paths, secrets, and the
    attributes of any other object. Objects are copied and not validated again, because a changed text must not turn an
    answer into an error. If an object cannot hold another text (a parsed URL), the text replaces the object. An
    iterator becomes a list.

    Args:
        value: Any value; it is not changed.
        change: Gets each text, always in the same order, and returns its replacement.
        fixed: Texts that stay, such as the keys of a schema. The names of a model's fields stay, too.

    Returns:
        The value with the new texts; the same object if no text changed.
    """
    return _Walk(change, fixed).replaced(value)


class _Walk:
    def __init__(self, change: Change, fixed: frozenset[str]) -> None:
        self._change, self._fixed = change, fixed
        self._in_key = False
        self._open: dict[int, Any] = {}  # objects on the path to here, with the copy of a recursive one

    def replaced(self, value: Any) -> Any:
        if isinstance(value, _WITHOUT_TEXT):
            return value
        match value:
            case Mapping():
                made: Any = self._mapping(value)
            case list() | deque():
                made = self._sequence(value)
            case tuple() | set() | frozenset():
                cleaned = [self.replaced(item) for item in value]
                make = getattr(type(value), "_make", type(value))  # named tuples take fields as separate arguments
                made = value if _same(cleaned, value) else make(cleaned)
            case Iterator():
                made = [self.replaced(item) for item in value]
            case _:
                made = self._leaf(value)
        return made

    def _leaf(self, value: Any) -> Any:
        match value:
            case str():
                made = self._text(value, value, str)
            case bytes() | bytearray():
                made = self._text(value, value.decode(errors="replace"), lambda text: type(value)(text.encode()))
            case PurePath():
                made = self._text(value, str(value), type(value))
            case re.Pattern():
                made = self._text(value, str(value.pattern), re.compile)
            case _:
                made = self._object(value)
        return made

    def _text(self, value: Any, text: str, make: Callable[[str], Any]) -> Any:
        if text in self._fixed:
            return value
        changed = self._change(text, self._in_key)
        return value if changed == text else make(changed)

    def _sequence(self, value: Any) -> Any:
        cleaned = [self.replaced(item) for item in value]
        if _same(cleaned, value):
            return value
        made = copy(value)
        made.clear()
        made.extend(cleaned)
        return made

    def _mapping(self, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        cleaned: dict[Any, Any] = {}
        for key, item in value.items():
            name = self._key(key)
            while name in cleaned:  # two keys can become the same text, and both values must be kept
                name = f"{name}+"
            cleaned[name] = self.replaced(item)
        same = _same(cleaned, value) and _same(cleaned.values(), value.values())
        return value if same else cleaned

    def _key(self, key: Any) -> Any:
        outer, self._in_key = self._in_key, True
        try:
            return self.replaced(key)
        finally:
            self._in_key = outer

    def _object(self, value: Any) -> Any:
        if id(value) in self._open:  # the object is recursive
            self._open[id(value)] = made = self._open[id(value)] or _copy(value)
            return made
        names = _STATE_OF_MODELS if isinstance(value, BaseModel) else _attributes(value)
        if isinstance(value, BaseModel) and not self._fixed.issuperset(type(value).model_fields):
            self._fixed = self._fixed.union(type(value).model_fields)
        if not names:
            return self._text(value, str(value), str)
        self._open[id(value)] = None
        old = {name: getattr(value, name) for name in names}
        new = {name: self.replaced(item) for name, item in old.items()}
        made = self._open.pop(id(value))
        changed = {name: item for name, item in new.items() if item is not old[name]}
        if not changed:
            return value
        made = made or _copy(value)
        try:
            for name, item in changed.items():
                object.__setattr__(made, name, item)
        except (AttributeError, TypeError):
            return new
        return made


def _copy(value: Any) -> Any:
    try:
        return copy(value)
    except Exception:  # the class belongs to the program, and can refuse in any way
        return None


def _attributes(value: Any) -> list[str]:
    slots = [each for kind in type(value).__mro__ for each in _slots(kind)]
    return [name for name in (*slots, *getattr(value, "__dict__", ())) if hasattr(value, name)]


def _slots(kind: type) -> list[str]:
    given = kind.__dict__.get("__slots__", ())
    names = [given] if isinstance(given, str) else list(given)
    hidden = f"_{kind.__name__.lstrip('_')}"
    return [f"{hidden}{name}" if name.startswith("__") and not name.endswith("__") else name for name in names]


def _same(made: Any, value: Any) -> bool:
    return all(one is other for one, other in zip(made, value, strict=True))
