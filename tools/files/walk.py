"""Opens and writes the files at places that `Roots` found, and finds everything that a pattern matches below a folder.

Links are listed and never followed. One folder is open at a time, whatever the depth. The way back is `..`, taken only
if it leads to the same folder.
"""

from __future__ import annotations

import fnmatch
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

from ...core.errors import PathRefused, ToolFailed
from .roots import Handle, Identity, Place, Roots, reporting_errors, shown

if sys.platform != "win32":
    import fcntl

_FRESH: Final = os.O_EXCL | os.O_CREAT | os.O_WRONLY
_TRIES: Final = 200
_WAIT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file.

    Attributes:
        file: Reads it.
        found: Its status when it was opened.
    """

    file: BinaryIO
    found: os.stat_result


@contextmanager
def opened(place: Place, *, writable: bool = False) -> Generator[Opened]:
    """Open the file at a place to read it.

    Args:
        place: The place.
        writable: Whether this process must be able to write it.

    Raises:
        ToolFailed: It does not exist, is not a regular file, or cannot be read (or written).
    """
    handle = reporting_errors(place.given, lambda: _handle(place, os.O_RDWR if writable else os.O_RDONLY))
    with os.fdopen(handle, "rb") as file:
        yield Opened(file, os.fstat(handle))


def _handle(place: Place, flags: int) -> int:
    if not place.name or stat.S_ISDIR((before := place.handle.stat(place.name)).st_mode):
        raise ToolFailed(
            f"{shown(place.given)} is a folder", remedy="name a file; glob_files lists what is in a folder"
        )
    if stat.S_ISREG(before.st_mode):
        handle = place.handle.open(place.name, flags)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # the name may belong to another file by now
            return handle
        os.close(handle)
    raise ToolFailed(f"{shown(place.given)} is neither a file nor a folder", remedy="name another path")


def write(place: Place, content: bytes) -> bool:
    """Create the file at a place, or replace its content with `content`.

    Returns:
        Whether the file existed.

    Raises:
        ToolFailed: The place holds something other than a file, or cannot be written.
    """
    return reporting_errors(place.given, lambda: _write(place, content))


def _write(place: Place, content: bytes) -> bool:
    try:
        old = _handle(place, os.O_WRONLY)
    except FileNotFoundError:
        _put(place, content, None)
        return False
    with os.fdopen(old, "wb", closefd=True) as file:
        like = os.fstat(old)
        _put(place, content, like, _lockable(file))
    return True


def replace(place: Place, content: bytes, was: Opened) -> None:
    """Replace the file that was read with `content`.

    Args:
        place: The place of the file.
        content: The new content.
        was: The file, still open.

    Raises:
        ToolFailed: The file has changed since it was read, or cannot be written.
    """

    def changed() -> bool:
        return _state(place.handle.stat(place.name)) != _state(was.found)

    def put() -> None:
        _put(place, content, was.found, _lockable(was.file), changed)

    reporting_errors(place.given, put)


def _put(
    place: Place,
    content: bytes,
    like: os.stat_result | None,
    lock: int | None = None,
    changed: Callable[[], bool] = lambda: False,
) -> None:
    temporary_name = f".worldagent-{secrets.token_hex(8)}.tmp"
    with ExitStack() as undo:
        undo.callback(_drop, place.handle, temporary_name)
        _fill(place.handle, temporary_name, content, like)
        if lock is not None:
            _lock(lock, place.given)  # released when the file is closed
        if changed():
            raise ToolFailed(
                f"{shown(place.given)} was changed meanwhile", remedy="read it again, and edit what it says now"
            )
        place.handle.replace(temporary_name, place.name)
        undo.pop_all()


def _lockable(file: BinaryIO) -> int | None:
    """Return the file to lock while it is replaced, or None; Windows cannot replace an open file."""
    if sys.platform == "win32":
        file.close()
        return None
    return file.fileno()


def _lock(file: int, given: str) -> None:
    """Exclude others that replace the same file in this way, in this process or another one."""
    if sys.platform == "win32":
        return
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_WAIT)
        except OSError:  # the file system does not support locks
            return
        else:
            return
    raise ToolFailed(f"{shown(given)} is locked by another program", remedy="try again later")


def _fill(handle: Handle, name: str, content: bytes, like: os.stat_result | None) -> None:
    """Create a file with this content and, if it replaces a file, with that one's owner and permissions."""
    mode = 0o666 if like is None else stat.S_IMODE(like.st_mode) & 0o777
    made = handle.open(name, _FRESH, mode if like is None else mode & 0o700)
    with os.fdopen(made, "wb") as file:
        if like is not None and sys.platform != "win32":
            _give(made, like)
            os.fchmod(made, mode)
        file.write(content)
        file.flush()
        os.fsync(made)


def _give(made: int, like: os.stat_result) -> None:
    now = os.fstat(made)
    if sys.platform == "win32" or (now.st_uid, now.st_gid) == (like.st_uid, like.st_gid):
        return
    for owner in (like.st_uid, -1):  # without privileges, a process can give a file only to one of its groups
        try:
            os.fchown(made, owner, like.st_gid)
        except PermissionError:
            continue
        return


def _drop(handle: Handle, name: str) -> None:
    try:
        handle.remove(name)
    except OSError:
        return


def _state(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


# --- patterns ---------------------------------------------------------------------------------------------------------

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


def _parts(pattern: str, text: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if pattern.startswith("/") or ".." in names:
        raise PathRefused(
            f"the pattern {text!r} must not lead out of the folder that is searched",
            remedy="name the folder in 'path', and in the pattern only what is below it",
        )
    if not names:
        raise ToolFailed(f"the pattern {text!r} matches nothing", remedy="use '*' for everything in a folder")
    if names[-1] == "**":
        names.append("*")
    return [name for name, before in zip(names, ["", *names], strict=False) if not (name == before == "**")]


# --- searching --------------------------------------------------------------------------------------------------------

_ENTRIES: Final = 500_000
"""The maximum number of names that one search looks at."""
_SECONDS: Final = 10.0  # that one search can take
_DEEPEST: Final = 4000
"""The maximum characters of a path below the folder; a longer one could not be read."""


class Search:
    """The limits of one search, and the reason why it stopped.

    Args:
        cancelled: Whether the call has been cancelled.
    """

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._end = time.monotonic() + _SECONDS
        self._left = _ENTRIES
        self.closed = 0
        self.stopped = ""

    def check_limits(self, looked_at: int = 0) -> bool:
        """Whether to continue, after looking at some more names."""
        self._left -= looked_at
        if self._cancelled():
            self.stopped = "the call was cancelled"
        elif time.monotonic() > self._end:
            self.stopped = f"stopped after {_SECONDS:g} seconds"
        elif self._left < 0:
            self.stopped = f"stopped after {_ENTRIES:,} names"
        return not self.stopped

    @property
    def notes(self) -> tuple[str, str]:
        """Notes for the reader of the result."""
        return (
            f"{self.stopped}, and the search is incomplete: name a folder further down, or a narrower pattern"
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
        handle: The folder that it is in, open until the next match is requested.
    """

    names: tuple[str, ...]
    folder: bool
    file: bool
    handle: Handle


@dataclass(frozen=True, slots=True)
class _Level:
    identity: Identity
    state: State
    names: tuple[str, ...]
    entries: Iterator[tuple[str, bool, bool]]  # name, whether it is a folder, whether it is a file


def walk(start: Handle, pattern: Pattern, search: Search) -> Generator[Match]:
    """Find what a pattern matches below a folder; each folder's content is sorted by name and follows the folder."""
    handle = start
    levels = [first] if (first := _level(handle, pattern.start, (), search)) else []
    try:
        while levels and not search.stopped:
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                levels.pop()
                if levels and (back := _back(handle, levels[-1].identity, search)):
                    handle = _replace_handle(handle, back, start)
                continue
            if not search.check_limits():
                break
            name, folder, file = entry
            state = pattern.after(level.state, name)
            names = (*level.names, name)
            if pattern.matches(state):
                yield Match(names, folder, file, handle)
            if folder and pattern.can_match_below(state) and (inner := _inner(handle, names, search)):
                if below := _level(inner, state, names, search):
                    handle = _replace_handle(handle, inner, start)
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
        ToolFailed: The path does not exist, or is neither a file nor a folder.
    """
    with roots.place(path) as place:
        if place.name and not stat.S_ISDIR(reporting_errors(path, lambda: place.handle.stat(place.name)).st_mode):
            with opened(place) as one:
                yield roots.name(place.path), one.file
            return
    with roots.place(path, folder=True) as place:
        for found in walk(place.handle, pattern, search):
            where = place.path.joinpath(*found.names)
            if not found.file or not search.check_limits():
                continue
            with ExitStack() as stack:
                try:
                    one = stack.enter_context(opened(Place(found.handle, found.names[-1], where, path)))
                except ToolFailed:
                    search.closed += 1
                else:
                    yield roots.name(where), one.file


def _replace_handle(old: Handle, new: Handle, start: Handle) -> Handle:
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
    except OSError:  # the folder was removed
        pass
    search.stopped = "stopped, since a folder was moved meanwhile"
    return None


def _level(handle: Handle, state: State, names: tuple[str, ...], search: Search) -> _Level | None:
    """Read a folder; returns None if it cannot be listed, or if its parent cannot be opened again."""
    found: list[tuple[str, bool, bool]] = []
    try:
        handle.stat(".")
        with handle.entries() as entries:
            for entry in entries:
                if len(found) % 1000 == 0 and not search.check_limits(1000 if found else 0):
                    break
                kinds = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
                found.append((entry.name, *kinds))
        identity = handle.identity
    except OSError:
        search.closed += 1
        return None
    search.check_limits(len(found) % 1000)
    return _Level(identity, state, names, iter(sorted(found)))
