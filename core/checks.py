"""Checks of the fields of frozen dataclasses, and their JSON. Each error names the field."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from pydantic import SecretStr

from .clock import utc_text
from .errors import InvalidArgument
from .scope import check_id
from .validation import is_text, storable_json

MAX_TEXT: Final = 20_000
"""Characters of a text, such as the soul of a member or the content of a message."""

MAX_PAYLOAD: Final = 100_000
"""Characters of a payload as JSON."""


def check_text(name: str, value: object, *, most: int = MAX_TEXT, empty: bool = False) -> None:
    """Refuse a field that is not a text of up to `most` characters.

    Args:
        name: The field.
        value: Its value.
        most: The most characters.
        empty: Whether it can be empty.

    Raises:
        InvalidArgument: It is not.
    """
    fits = isinstance(value, str) and len(value) <= most and "\0" not in value
    if not fits or not (is_text(value) or (empty and value == "")):
        raise InvalidArgument(
            f"`{name}` must be a text of {0 if empty else 1} to {most:,} characters that UTF-8 can encode",
            remedy="shorten it" if isinstance(value, str) and len(value) > most else "pass a text",
        )


def has_variable(value: object) -> bool:
    """Whether a value that is written in a file has a variable, such as `${NAME}`, in one of its texts.

    Variables are filled in nowhere but in MCP servers, so that a file cannot send what it does not know.

    Args:
        value: A text, a path, a secret, or a list or mapping of them.
    """
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Mapping):
        return any(map(has_variable, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_variable, value))
    return isinstance(value, str | PurePath) and "${" in str(value)


NO_VARIABLES: Final = "variables are filled in for MCP servers only"
"""Why such a value is refused."""


def check_texts(**given: object) -> None:
    """Refuse arguments that are not texts, such as the ids of what a call looks for.

    Raises:
        InvalidArgument: One of them is not; the text names it.
    """
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"`{name}` must be a text, got a {type(value).__name__}", remedy="pass it as a str")


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Refuse a field whose value is none of `known`.

    Raises:
        InvalidArgument: It is not; the text lists them.
    """
    if value not in known:
        raise InvalidArgument(
            f"`{name}` must be one of {', '.join(map(repr, known))}, got {str(value)[:40]!r}", remedy="use one of them"
        )


def check_share(name: str, value: object) -> None:
    """Refuse a field that is not a number from 0 to 1.

    Raises:
        InvalidArgument: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(f"`{name}` must be a number from 0 to 1", remedy="pass for example 0.3")


def check_number(name: str, value: object, *, least: float = float("-inf")) -> None:
    """Refuse a field that is not a finite number of at least `least`.

    Raises:
        InvalidArgument: It is not.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= value < float("inf") and value > float("-inf")):  # type: ignore[operator] # a number
        bound = "" if least == float("-inf") else f" of at least {least:g}"
        raise InvalidArgument(f"`{name}` must be a finite number{bound}", remedy="pass a number")


def check_time(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse a field that is not a time with a zone.

    Raises:
        InvalidArgument: It is not a datetime with a zone, nor None where that is allowed.
    """
    if not (optional and value is None) and not (isinstance(value, datetime) and value.tzinfo is not None):
        raise InvalidArgument(f"`{name}` must be a datetime with a time zone", remedy="use datetime.now(UTC)")


def ids(name: str, value: object) -> tuple[str, ...]:
    """Return a list of ids as a tuple, each once, in its order.

    Raises:
        InvalidArgument: It is not a list, or an item is not an id.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(f"`{name}` must be a list of ids", remedy=f'pass for example {name}=["cro"]')
    return tuple(dict.fromkeys(check_id(name, each) for each in value))


def items(name: str, value: object, kind: type) -> tuple[Any, ...]:
    """Return a list of objects of one kind as a tuple.

    Raises:
        InvalidArgument: It is not a list, or an item is of another kind.
    """
    listed = list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else [None]
    if not all(isinstance(each, kind) for each in listed):
        raise InvalidArgument(f"`{name}` must be a list of {kind.__name__}", remedy=f"pass {kind.__name__} objects")
    return tuple(listed)


def mapping(name: str, value: object, kind: type) -> Mapping[str, Any]:
    """Return a read-only copy of a mapping from ids to objects of one kind.

    Raises:
        InvalidArgument: It is not such a mapping.
    """
    fits = isinstance(value, Mapping) and all(isinstance(each, kind) for each in value.values())
    if not fits:
        raise InvalidArgument(f"`{name}` must map ids to {kind.__name__}", remedy=f"pass {kind.__name__} objects")
    assert isinstance(value, Mapping)
    return MappingProxyType({check_id(name, key): each for key, each in value.items()})


def json_object(name: str, value: object) -> Mapping[str, Any]:
    """Return a read-only copy of a JSON object, at all depths: objects are mappings, and lists are tuples.

    Raises:
        InvalidArgument: It is not a JSON object, or it has more than `MAX_PAYLOAD` characters as JSON.
    """
    problem = "" if isinstance(value, Mapping) else f"not a {type(value).__name__}"
    text = ""
    if not problem:
        try:
            text = storable_json(thawed(value))
        except (TypeError, ValueError) as failure:
            problem = f"and this is not JSON ({type(failure).__name__})"
    if problem:
        raise InvalidArgument(f"`{name}` must be a JSON object, {problem}", remedy="use JSON values with texts as keys")
    if len(text) > MAX_PAYLOAD:
        raise InvalidArgument(
            f"`{name}` has {len(text):,} characters as JSON, and at most {MAX_PAYLOAD:,} are allowed",
            remedy="send a reference to the data",
        )
    frozen: Mapping[str, Any] = _frozen(json.loads(text))
    return frozen


def to_json(value: object) -> Any:
    """A dataclass, or what it holds, as JSON: times are ISO 8601 in UTC, fields that are None are left out."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return utc_text(value)
        case Mapping():
            return {key: to_json(each) for key, each in value.items()}
        case tuple() | list():
            return [to_json(each) for each in value]
        case _ if is_dataclass(value):
            given = {each.name: getattr(value, each.name) for each in fields(value)}
            return {name: to_json(each) for name, each in given.items() if each is not None}
        case _:
            return value


def thawed(value: object) -> Any:
    """A frozen JSON value as plain dictionaries and lists."""
    match value:
        case Mapping():
            return {key: thawed(each) for key, each in value.items()}
        case tuple() | list():
            return [thawed(each) for each in value]
        case _:
            return value


def _frozen(value: Any) -> Any:
    match value:
        case dict():
            return MappingProxyType({key: _frozen(each) for key, each in value.items()})
        case list():
            return tuple(map(_frozen, value))
        case _:
            return value


def check_limits(limits: object, *names: str) -> None:
    """Check limits that must be above 0.

    Args:
        limits: What has them as attributes.
        *names: Their names.

    Raises:
        InvalidArgument: One of them is not above 0, or not finite.
    """
    for name in names:
        value: float = getattr(limits, name)
        if not (math.isfinite(value) and value > 0):
            raise InvalidArgument(f"{name} must be above 0 and finite, got {value!r}", remedy="give a number above 0")
