"""Patterns of names: `*`, `?`, `[...]`, `{a,b}` and `**` for any number of folders. `walk` finds what they match.

As in a shell, a name that begins with `.` needs a part of the pattern that begins so too, and `**` skips such folders.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...core.errors import PathRefused, ToolFailed

_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST: Final = 64
"""The maximum number of patterns that braces can expand to."""

State = int
"""Which parts of the patterns the next name on a path can match: a bit for each part, and one for each pattern end."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A matcher for one name, and the parts of the patterns that it implements."""

    fits: Callable[[str], object]
    hidden: bool
    parts: State


class Pattern:
    """A pattern of paths, matched name by name on the way down.

    Args:
        text: The pattern, with `/` between names.

    Raises:
        PathRefused: It is absolute, or contains `..`.
        ToolFailed: It expands to too many patterns, or to none.
    """

    def __init__(self, text: str) -> None:
        parts: dict[str, State] = {}  # a name is compared with each part once, however often the part occurs
        starts, ends, bit = 0, 0, 1
        for pattern in dict.fromkeys(_expanded(text)):
            starts |= bit
            for part in _parts(pattern, text):
                parts[part] = parts.get(part, 0) | bit
                bit <<= 1
            ends |= bit
            bit <<= 1
        self._ends = ends
        self._folders = parts.pop("**", 0)
        self._names = [
            _Name(re.compile(fnmatch.translate(part)).match, part.startswith("."), bits) for part, bits in parts.items()
        ]
        self.start = self._skipping(starts)

    def after(self, state: State, name: str) -> State:
        """Return the state below, or at, `name` in a folder in this state."""
        hidden = name.startswith(".")
        reached = 0 if hidden else state & self._folders
        for each in self._names:
            if (at := state & each.parts) and (each.hidden or not hidden) and each.fits(name):
                reached |= at << 1
        return self._skipping(reached)

    def matches(self, state: State) -> bool:
        """Whether this state is a match."""
        return bool(state & self._ends)

    def can_match_below(self, state: State) -> bool:
        """Whether something below can match."""
        return bool(state & ~self._ends)

    def _skipping(self, state: State) -> State:
        """Add the parts that follow a `**`, which can match no folder at all."""
        return state | (state & self._folders) << 1


def _expanded(text: str) -> list[str]:
    todo, done = [text], list[str]()
    while todo:
        each = todo.pop()
        if found := _BRACES.search(each):
            todo.extend(each[: found.start()] + choice + each[found.end() :] for choice in found[1].split(","))
        else:
            done.append(each)
        if len(todo) + len(done) > _MOST:
            raise ToolFailed(f"the pattern {text!r} expands to too many patterns", remedy="use fewer braces")
    return done


def _parts(pattern: str, whole: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if pattern.startswith("/") or ".." in names:
        raise PathRefused(
            f"the pattern {whole!r} must not lead out of the folder that is searched",
            remedy="name the folder in 'path', and in the pattern only what is below it",
        )
    if not names:
        raise ToolFailed(f"the pattern {whole!r} matches nothing", remedy="use '*' for everything in a folder")
    if names[-1] == "**":
        names.append("*")
    return [name for name, before in zip(names, ["", *names], strict=False) if not (name == before == "**")]


__all__ = ["Pattern", "State"]
