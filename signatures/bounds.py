"""How much of a model's answer is read, so that reading it never holds the event loop for long.

Every text of a model that is read as JSON goes through `JsonReader`. Not here: what the value must be, which the
adapters and pydantic decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, SupportsIndex

import json_repair

LONGEST: Final = 1 << 17
"""Characters of one answer. Reading them takes a few passes of 5 to 15 ms each."""

MOST_SECTIONS: Final = 1000
"""Field markers in one answer."""

_MOST_VALUES = 4096  # values in one answer: walking, checking and scrubbing each takes microseconds
_DEEPEST = 64  # levels of one JSON text: code that calls itself for each level ends at some 300
_LONGEST_REPAIRED = 4096  # characters of one text that is repaired where it is not JSON
_MOST_STEPS = (
    20_000  # steps of all repairs of one answer, 5 to 15 ms; one that succeeds takes up to three for each character
)


class Unreadable(ValueError):
    """A text is not JSON, or is more than is read."""


class JsonReader:
    """Reads the JSON texts of one answer. What may be spent on repairs and values is for all of them together.

    Args:
        repairs: Whether texts that are not quite JSON may be repaired. Those of an answer that was cut off may not:
            what is left of them says something else.
    """

    def __init__(self, *, repairs: bool = True) -> None:
        self._repairs = repairs
        self._steps = [_MOST_STEPS]
        self._values = _MOST_VALUES

    def read(self, text: str, *, repair: bool = True) -> Any:
        """Read `text` as JSON.

        Args:
            text: What may be JSON.
            repair: Whether to repair it if it is short and not quite JSON.

        Returns:
            The value; an empty text where nothing in `text` looks like JSON.

        Raises:
            Unreadable: It is not JSON, or is too long, too deep or of too many values.
        """
        if len(text) > LONGEST:
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
        """Count a JSON value that something else has read.

        Raises:
            Unreadable: It has too many values, or nests too deep.
        """
        self._values -= _count(value, self._values)

    def _repaired(self, text: str) -> Any:
        if len(text) > _LONGEST_REPAIRED:
            raise Unreadable
        try:
            repaired = json_repair.repair_json(_Metered(text, self._steps), return_objects=True, skip_json_loads=True)
            # Its texts may be pieces of the metered one.
            return json.loads(json.dumps(repaired))
        except Exception as error:  # on odd texts the library fails with an AssertionError, an IndexError and others
            raise Unreadable from error


def _count(value: object, most: int) -> int:
    """How many values there are in a JSON value, which may be nested deeper than code can call itself.

    Raises:
        Unreadable: There are more than `most`, or they nest too deep.
    """
    level, count = [value], 0
    for _ in range(_DEEPEST):
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
    """A text that can be looked at so many times. The repair reads it character by character, and again.

    For some texts of 4,000 characters it would take minutes; how long cannot be known from the text.
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

    # The repair puts in what is missing, and reads on in the new text.
    def __add__(self, other: str) -> _Metered:
        return _Metered(super().__add__(other), self._left)

    def __radd__(self, other: str) -> _Metered:
        return _Metered(other.__add__(self), self._left)

    def _count(self, steps: int) -> None:
        self._left[0] -= steps
        if self._left[0] < 0:
            raise Unreadable


__all__ = ["LONGEST", "MOST_SECTIONS", "JsonReader", "Unreadable"]
