"""All that a pattern matches below a folder, in order. Links are named and never followed.

One folder is open at a time, whatever the depth: the way back is `..`, and taken only if it leads where it came from.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Final

from ...core.errors import ToolFailed
from .content import opened
from .handle import Handle, Identity
from .pattern import Pattern, State
from .roots import Place, Roots, told

_ENTRIES: Final = 500_000
"""How many names one search looks at."""
_SECONDS: Final = 10.0
_DEEPEST: Final = 4000
"""How many characters a path below the folder may have; a longer one could not be read."""


class Search:
    """How far one search may go, and why it went no further.

    Args:
        cancelled: Whether nobody waits for it any more.
        seconds: How long it may take.
        entries: How many names it may look at.
    """

    def __init__(self, cancelled: Callable[[], bool], *, seconds: float = _SECONDS, entries: int = _ENTRIES) -> None:
        self._cancelled = cancelled
        self._seconds = seconds
        self._entries = entries
        self._end = time.monotonic() + seconds
        self._left = entries
        self.closed = 0
        self.stopped = ""

    def goes_on(self, looked_at: int = 0) -> bool:
        """Whether there is leave to go on, having looked at some more names."""
        self._left -= looked_at
        if self._cancelled():
            self.stopped = "nobody waits for the result any more"
        elif time.monotonic() > self._end:
            self.stopped = f"stopped after {self._seconds:g} seconds"
        elif self._left < 0:
            self.stopped = f"stopped after {self._entries:,} names"
        return not self.stopped

    @property
    def notes(self) -> tuple[str, str]:
        """What a reader of the result should know."""
        return (
            f"{self.stopped}, and not everything was looked at: name a folder further down, or a narrower pattern"
            if self.stopped
            else "",
            f"folders or files that cannot be opened: {self.closed:,}" if self.closed else "",
        )


@dataclass(frozen=True, slots=True)
class Match:
    """Something that a pattern matches.

    Attributes:
        names: Its path below the folder that is searched.
        folder: Whether it is a folder.
        file: Whether it is a file; a link is neither.
        handle: The folder it is in, open until the next one is asked for.
    """

    names: tuple[str, ...]
    folder: bool
    file: bool
    handle: Handle


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    folder: bool
    file: bool


@dataclass(frozen=True, slots=True)
class _Level:
    identity: Identity
    state: State
    names: tuple[str, ...]
    entries: Iterator[_Entry]


def walk(start: Handle, pattern: Pattern, search: Search) -> Generator[Match]:
    """Find what a pattern matches below a folder, each folder's content sorted by name and at the folder's place."""
    handle = start
    levels = [first] if (first := _level(handle, pattern.start, (), search)) else []
    try:
        while levels and not search.stopped:
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                levels.pop()
                if levels and (back := _back(handle, levels[-1].identity, search)):
                    handle = _instead(handle, back, start)
                continue
            if not search.goes_on():
                break
            state = pattern.after(level.state, entry.name)
            names = (*level.names, entry.name)
            if pattern.matches(state):
                yield Match(names, entry.folder, entry.file, handle)
            if entry.folder and pattern.goes_on(state) and (inner := _inner(handle, names, search)):
                if below := _level(inner, state, names, search):
                    handle = _instead(handle, inner, start)
                    levels.append(below)
                else:
                    inner.close()
    finally:
        if handle is not start:
            handle.close()


def files(roots: Roots, path: str, pattern: Pattern, search: Search) -> Generator[tuple[str, BinaryIO]]:
    """Open the file at a path; or those below the folder there that a pattern matches, one after the other.

    Raises:
        PathRefused: It leads out of the folders.
        ToolFailed: There is nothing, or something else.
    """
    with roots.place(path) as place:
        if place.name and not stat.S_ISDIR(told(path, lambda: place.handle.stat(place.name)).st_mode):
            with opened(place) as one:
                yield roots.name(place.path), one.file
            return
    with roots.place(path, folder=True) as place:
        for found in walk(place.handle, pattern, search):
            where = place.path.joinpath(*found.names)
            if not found.file or not search.goes_on():
                continue
            with ExitStack() as stack:
                try:
                    one = stack.enter_context(opened(Place(found.handle, found.names[-1], where, path)))
                except ToolFailed:
                    search.closed += 1
                else:
                    yield roots.name(where), one.file


def _instead(old: Handle, new: Handle, start: Handle) -> Handle:
    if old is not start:
        old.close()
    return new


def _inner(handle: Handle, names: tuple[str, ...], search: Search) -> Handle | None:
    if sum(map(len, names)) + len(names) > _DEEPEST:
        search.closed += 1
        return None
    try:
        return handle.child(names[-1])
    except OSError:
        search.closed += 1
        return None


def _back(handle: Handle, to: Identity, search: Search) -> Handle | None:
    try:
        above = handle.parent()
        if above.identity == to:
            return above
        above.close()
    except OSError:  # it was removed
        pass
    search.stopped = "stopped, since a folder was moved meanwhile"
    return None


def _level(handle: Handle, state: State, names: tuple[str, ...], search: Search) -> _Level | None:
    """What is in a folder; None where it cannot be listed, or not be left again."""
    found: list[_Entry] = []
    try:
        handle.stat(".")
        with handle.entries() as entries:
            for entry in entries:
                if len(found) % 1000 == 0 and not search.goes_on(1000 if found else 0):
                    break
                found.append(
                    _Entry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                )
        identity = handle.identity
    except OSError:
        search.closed += 1
        return None
    search.goes_on(len(found) % 1000)
    return _Level(identity, state, names, iter(sorted(found, key=lambda each: each.name)))


__all__ = ["Match", "Search", "files", "walk"]
