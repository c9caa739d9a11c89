"""Arguments that Gemini streams in parts: each part has a path and a value, and texts continue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from ..calling import MAX_CHARACTERS, MAX_VALUES
from .classification import AnswerTooLong, Malformed

_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")


class PartialArguments:
    """The arguments of one call, as far as they have come.

    Attributes:
        value: The arguments.
    """

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self._characters = 0

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part.

        Raises:
            Malformed: Its path cannot be read, or does not fit what came before.
            AnswerTooLong: The arguments exceed the limit of an answer.
        """
        name = next((name for name in _VALUES if part.get(name) is not None), None)
        if name is None and "nullValue" not in part:
            return
        value = None if name is None else part[name]
        path = str(part.get("jsonPath"))
        self._characters += len(path) + len(str(value))
        if self._characters > MAX_CHARACTERS:
            raise AnswerTooLong
        steps = _steps(path)
        place: Any = self.value
        for step, following in pairwise(steps):
            place = _child(place, step, {} if isinstance(following, str) else [])
        last = steps[-1]
        before = _child(place, last, None)
        place[last] = before + value if isinstance(before, str) and isinstance(value, str) else value


def _steps(path: str) -> list[str | int]:
    """The names and numbers of a path such as `$.items[0]['a name']`."""
    steps = list(_read(path))
    if not steps or isinstance(steps[0], int):
        raise Malformed
    return steps


def _read(path: str) -> Iterator[str | int]:
    at, end = 1, len(path)
    while path.startswith("$") and at < end and (found := _STEP.match(path, at)):
        at = found.end()
        name, number, *quoted = found.groups()
        if number is not None:
            yield int(number)
        else:
            yield (
                name if name is not None else re.sub(r"\\(.)", r"\1", quoted[0] if quoted[0] is not None else quoted[1])
            )
    if at != end:
        raise Malformed


def _child(place: Any, step: str | int, new: Any) -> Any:
    """What is at one step of a path, or `new`, which is put there."""
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, new)
    if not isinstance(place, list) or not isinstance(step, int) or step > MAX_VALUES:
        raise Malformed
    place += [None] * (step + 1 - len(place))
    if place[step] is None:
        place[step] = new
    return place[step]
