"""What a rule says of one argument of a call. A predicate that is not sure does not hold."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

_WILD = re.compile(r"[*?\[]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_UP = re.compile(r"(^|[/\\])\.\.([/\\]|$)")


class Predicate(BaseModel):
    """What must hold of one argument; all that is given must hold.

    Attributes:
        equals: It is this JSON value.
        among: It is one of these JSON values.
        like: It is a text that the glob matches. A wildcard matches no line break, no other control character and no
            path that climbs with `..`.
        under: It is a path at or below this folder, as a text: `..` is followed, links are not looked at.
        least: It is a number, no smaller.
        most: It is a number, no greater.
        longest: It is a text or a list with no more characters or items.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    equals: Any = None
    among: tuple[Any, ...] | None = Field(default=None, min_length=1)
    like: str | None = Field(default=None, min_length=1)
    under: str | None = Field(default=None, min_length=1)
    least: float | None = Field(default=None, allow_inf_nan=False)
    most: float | None = Field(default=None, allow_inf_nan=False)
    longest: Annotated[int, Field(ge=0)] | None = None

    @field_validator("under")
    @classmethod
    def _whole(cls, path: str | None) -> str | None:
        return None if path is None else posixpath.normpath(path)

    def holds(self, value: Any) -> bool:
        """Whether it holds of an argument, as JSON."""
        given = self.model_fields_set
        return bool(given) and all(self._one(name, value) for name in given)

    def _one(self, name: str, value: Any) -> bool:
        match name:
            case "equals":
                return _same(value, self.equals)
            case "among":
                return any(_same(value, each) for each in self.among or ())
            case "like":
                return isinstance(value, str) and _matches(value, self.like or "")
            case "under":
                return isinstance(value, str) and _is_under(value, self.under or "")
            case "least":
                return _is_number(value) and self.least is not None and bool(value >= self.least)
            case "most":
                return _is_number(value) and self.most is not None and bool(value <= self.most)
            case _:
                return isinstance(value, str | list) and len(value) <= (self.longest or 0)


Said = str | bool | int | float | None | Predicate
"""What a policy says of an argument: a glob for a text, a value, or a predicate."""


def holds(said: Said, value: Any) -> bool:
    """Whether what a policy says of an argument holds of its value."""
    match said:
        case Predicate():
            return said.holds(value)
        case str():
            return isinstance(value, str) and _matches(value, said)
        case _:
            return _same(value, said)


MISSING = object()
"""What an argument is that is not there."""


def find(arguments: Mapping[str, Any], path: str) -> Any:
    """The argument at a dotted path, or `MISSING`."""
    if path in arguments:
        return arguments[path]
    value: Any = arguments
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return MISSING
        value = value[step]
    return value


def _matches(value: str, glob: str) -> bool:
    if not _WILD.search(glob):
        return value == glob
    return not _CONTROL.search(value) and not _UP.search(value) and fnmatchcase(value, glob)


def _is_under(value: str, folder: str) -> bool:
    if _CONTROL.search(value) or "\\" in value or value.startswith("~"):
        return False
    path = posixpath.normpath(value)
    if posixpath.isabs(path) != posixpath.isabs(folder) or path.startswith(".."):
        return False
    return folder in (".", "/") or path == folder or path.startswith(f"{folder}/")


def _same(value: Any, other: Any) -> bool:
    # True is 1 in Python, and neither is the other in JSON.
    return (type(value) is type(other) and value == other) or (
        _is_number(value) and _is_number(other) and bool(value == other)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


__all__ = ["MISSING", "Predicate", "Said", "find", "holds"]
