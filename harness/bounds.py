"""Results that are too small to carry a text: bools, numbers, dates, declared values, and ids of a declared pattern.

The declaration says which of them a result is, and the value itself is compared with it by code. A worker with such a
result marks only its own frame (see `Gate.of_call`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from pydantic import PydanticUserError, TypeAdapter

from ..core import canonical_json

_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 64) - 1
_MAX_ID: Final = 40  # characters
_DEEPEST: Final = 20  # references that are followed in a chain
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?"
_FORMATS: Final[Mapping[str, re.Pattern[str]]] = {
    "date": re.compile(_DATE),
    "date-time": re.compile(f"{_DATE}T{_TIME}"),
    "uuid": re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
_ELEMENT: Final = re.compile(
    r"(?P<one>[A-Za-z0-9_-]|\\d|\[(?P<set>(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_-]|\\d)+)\])"
    r"(?:\{(?P<least>[0-9]{1,2})(?:,(?P<most>[0-9]{1,2}))?\}|(?P<maybe>\?))?"
)
"""One element of the pattern of an id: a character, a digit, or a set of characters, and how often it stands there."""

Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a bounded result can be.

    Attributes:
        tests: Tests of a JSON value. One of them holds of each value that is bounded.
    """

    tests: tuple[Test, ...]

    def hold(self, text: str) -> bool:
        """Whether a worker's result is bounded.

        Args:
            text: The result as text, or as canonical JSON if it is not a text.
        """
        return any(test(each) for test in self.tests for each in _readings(text))

    def is_choice(self, text: str) -> bool:
        """Whether a worker's result is a bool, or one of the values that are declared: not a number, a date or an id.

        Args:
            text: As in `hold`.
        """
        choices = [test for test in self.tests if test is _is_bool or getattr(test, "func", None) is _is_one_of]
        return any(test(each) for test in choices for each in _readings(text))


def _readings(text: str) -> list[Any]:
    """A result as a text, and as the value whose canonical JSON it is."""
    try:
        value = json.loads(text)
        return [text, value] if canonical_json(value) == text else [text]
    except (ValueError, RecursionError):
        return [text]


@lru_cache(maxsize=1024)
def bounds_of(result: TypeAdapter[Any]) -> Bounds | None:
    """Return the bounds of a declared result; None if it can carry a text.

    Args:
        result: The declared result.
    """
    try:
        schema = result.json_schema()
    except PydanticUserError:
        return None
    tests = list(_tests(schema, schema.get("$defs", {}), _DEEPEST))
    return None if None in tests else Bounds(tuple(test for test in tests if test is not None))


def fits_bounds(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is a bool, number or date of a schema without alternatives, so that it carries no text."""
    test = None if schema.get("type") == "string" and "pattern" in schema else _test_of(schema)
    return test is not None and test(value)


def _tests(schema: Any, parts: Mapping[str, Any], deep: int) -> Iterator[Test | None]:
    """Yield a test for each way in which a value can fit the schema; None for a way that is not bounded."""
    match schema:
        case {"$ref": str() as reference} if deep:
            yield from _tests(parts.get(reference.rpartition("/")[2]), parts, deep - 1)
        case {"enum": [*values]}:
            yield partial(_is_one_of, [canonical_json(each) for each in values])
        case {"const": value}:
            yield partial(_is_one_of, [canonical_json(value)])
        case {"anyOf": [_, *_] as ways} | {"oneOf": [_, *_] as ways} if deep:
            for way in ways:
                yield from _tests(way, parts, deep - 1)
        case {"type": [_, *_] as kinds}:
            yield from (_test_of({**schema, "type": kind}) for kind in kinds)
        case _:
            yield _test_of(schema)


def _test_of(schema: Any) -> Test | None:
    match schema:
        case {"type": "boolean" | "null"}:
            return _is_bool
        case {"type": "integer" | "number"}:
            return _is_number
        case {"type": "string", "format": str() as form} if form in _FORMATS:
            return partial(_fits, _FORMATS[form])
        case {"type": "string", "pattern": str() as pattern} if is_id_pattern(pattern):
            return partial(_is_id, re.compile(pattern, re.ASCII))
        case _:
            return None


def is_id_pattern(pattern: str) -> bool:
    """Whether a declared pattern describes ids: at most 40 characters of letters, digits, `_` and `-`.

    It must be anchored by `^` and `$`. A set that has letters must have digits too, so that no words fit it.
    """
    inner = pattern[1:-1] if pattern.startswith("^") and pattern.endswith("$") else ""
    place = longest = 0
    while place < len(inner):
        found = _ELEMENT.match(inner, place)
        if found is None or not _has_digits(found["set"] or "0"):
            return False
        longest += int(found["most"] or found["least"] or 1)
        place = found.end()
    return 0 < longest <= _MAX_ID


def _has_digits(characters: str) -> bool:
    """Whether a set of a pattern has all digits, or no letters."""
    if "0-9" in characters or "\\d" in characters:
        return True
    return not any(each.isalpha() for each in characters)


def _is_one_of(values: list[str], value: Any) -> bool:
    return canonical_json(value) in values


def _is_bool(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """Whether it is a number of at most 64 bits. The digits of a longer one could spell a text."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and _MIN_INTEGER <= value <= _MAX_INTEGER


def _fits(form: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _is_id(form: re.Pattern[str], value: Any) -> bool:
    """Whether it fits, and is not a word: an id has a digit."""
    return _fits(form, value) and any(each.isdigit() for each in value)
