"""Limits of a model's answer, so that reading it never blocks the event loop for long.

Every model text that is read as JSON goes through `JsonReader`. The adapters and pydantic decide what the value must
be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, SupportsIndex

import json_repair

MAX_CHARACTERS: Final = 1 << 17
"""The limit of characters of one answer. Reading them takes a few passes of 5 to 15 ms each."""

MAX_SECTIONS: Final = 1000
"""The limit of field markers in one answer."""

MAX_VALUES = 4096  # the limit of values in one answer: walking, checking and scrubbing each takes microseconds
MAX_DEPTH = 64  # the limit of levels of one JSON text; recursive code fails at about 300
_LONGEST_REPAIRED = 4096  # the limit of characters of one text that is repaired if it is not JSON
MAX_REPAIR_STEPS = (
    20_000  # steps of all repairs of one answer, 5 to 15 ms; a repair takes up to three steps per character
)


class Unreadable(ValueError):
    """A text is not JSON, or exceeds a limit."""


class JsonReader:
    """Reads the JSON texts of one answer. The limits of repairs and values apply to all of them in sum.

    Args:
        repairs: Whether invalid JSON can be repaired. Texts of a truncated answer must not be repaired, because what
            remains of them can mean something else.
    """

    def __init__(self, *, repairs: bool = True) -> None:
        self._repairs = repairs
        self._steps = [MAX_REPAIR_STEPS]
        self._values = MAX_VALUES

    def read(self, text: str, *, repair: bool = True) -> Any:
        """Read `text` as JSON.

        Args:
            text: The text that can be JSON.
            repair: Whether to repair it if it is short and not quite JSON.

        Returns:
            The value; an empty text if nothing in `text` looks like JSON.

        Raises:
            Unreadable: The text is not JSON, or is too long, too deep or has too many values.
        """
        if len(text) > MAX_CHARACTERS:
            raise Unreadable
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError) as error:
            if not (repair and self._repairs):
                raise Unreadable from error
            value = self._repaired(text)
        self.count(value)
        return value

    def count(self, value: object) -> None:
        """Count a JSON value that other code has parsed.

        Raises:
            Unreadable: The value has too many values, or is nested too deeply.
        """
        self._values -= _count(value, self._values)

    def _repaired(self, text: str) -> Any:
        if len(text) > _LONGEST_REPAIRED:
            raise Unreadable
        try:
            repaired = json_repair.repair_json(_Metered(text, self._steps), return_objects=True, skip_json_loads=True)
            # Its texts can be slices of the metered one.
            return json.loads(json.dumps(repaired))
        except Exception as error:  # for odd texts the library raises AssertionError, IndexError and others
            raise Unreadable from error


def _count(value: object, most: int) -> int:
    """Count the values in a JSON value, which can be nested deeper than recursion allows.

    Raises:
        Unreadable: There are more than `most`, or they are nested too deeply.
    """
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > most:
            raise Unreadable
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return count
        level = below
    raise Unreadable


class _Metered(str):
    """A text that can be read a limited number of times. The repair reads it character by character, repeatedly.

    For some texts of 4,000 characters it would take minutes, and the text does not show how long.
    """

    __slots__ = ("_left",)
    _left: list[int]

    def __new__(cls, text: str, left: list[int]) -> _Metered:
        made = super().__new__(cls, text)
        made._left = left
        return made

    def __getitem__(self, place: SupportsIndex | slice) -> str:
        found = super().__getitem__(place)
        self._count(1 + len(found) // 16)
        return _Metered(found, self._left) if isinstance(place, slice) else found

    def __iter__(self) -> Iterator[str]:
        self._count(len(self))
        return super().__iter__()

    # The repair inserts missing characters, and continues in the new text.
    def __add__(self, other: str) -> _Metered:
        return _Metered(super().__add__(other), self._left)

    def __radd__(self, other: str) -> _Metered:
        return _Metered(other.__add__(self), self._left)

    def _count(self, steps: int) -> None:
        self._left[0] -= steps
        if self._left[0] < 0:
            raise Unreadable


__all__ = ["MAX_CHARACTERS", "MAX_SECTIONS", "JsonReader", "Unreadable"]
