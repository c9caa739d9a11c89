"""The folders that tools can access, and paths in them that never lead out.

A path is walked name by name from one of the folders, each name relative to its open folder (`Handle`); links are read
here and walked in the same way. So nothing outside of them is touched, not even to find out whether it exists, and
moving files meanwhile does not change that. The other modules of this folder work on the places that are found.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from ...core.errors import InvalidArgument, PathRefused, ToolFailed

Identity = tuple[int, int]

_RELATIVE: Final = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
_COMMON: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _COMMON
_PASSING: Final = _FOLDER | getattr(os, "O_PATH", 0)
"""Passing through a folder must not require permission to list it."""
_FILE: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0) | _COMMON

_REFUSED: Final = "it is in the home of the agent, which is out of reach of tools"


class Handle:
    """An open folder. Names given to it are single ones: no separator, neither `.` nor `..`.

    Args:
        path: Its path. It is opened here if `opened` is omitted, and must not be a link then.
        opened: Its file descriptor, if it is open.
        relative: Whether calls use the descriptor; False is the weaker way of Windows.
        hidden: A folder that is neither listed nor entered, by whatever name or link. Its own files are not opened
            through hard links either.

    Raises:
        OSError: It cannot be opened; `EACCES` if it is the hidden one.
    """

    __slots__ = ("_hidden", "_opened", "_path")

    def __init__(
        self, path: str, opened: int | None = None, *, relative: bool = _RELATIVE, hidden: Path | None = None
    ) -> None:
        self._path = path
        self._hidden = hidden
        if relative and opened is None:
            opened = os.open(path, _PASSING)
        elif opened is None:
            _check(path)
        self._opened = opened
        if hidden is not None and self.identity == _identity(hidden):
            self.close()
            raise PermissionError(errno.EACCES, _REFUSED)

    def child(self, name: str) -> Handle:
        """Return the folder `name` in this one.

        Raises:
            OSError: It does not exist, or is a link; for a link the error is `ELOOP` or `ENOTDIR`.
        """
        if self._opened is None:
            return Handle(self._inner(name), relative=False, hidden=self._hidden)
        return Handle(self._inner(name), os.open(name, _PASSING, dir_fd=self._opened), hidden=self._hidden)

    def parent(self) -> Handle:
        """Return the folder that this one is in now, which can differ from the one it was found in."""
        above = os.path.dirname(self._path)
        if self._opened is None:
            return Handle(above, relative=False, hidden=self._hidden)
        return Handle(above, os.open("..", _PASSING, dir_fd=self._opened), hidden=self._hidden)

    @property
    def identity(self) -> Identity:
        """The identity of the folder, whatever its name."""
        return _of(os.stat(self._path if self._opened is None else self._opened))

    def stat(self, name: str) -> os.stat_result:
        """Return the status of `name`; for a link, that of the link itself."""
        return os.stat(self._name(name), dir_fd=self._opened, follow_symlinks=False)

    def target(self, name: str) -> str:
        """Return the target of the link `name`; raises `OSError` if it is not a link."""
        return os.readlink(self._name(name), dir_fd=self._opened)

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open the file `name` without waiting, for example for a pipe; raises `OSError` if it is a link."""
        handle = os.open(self._name(name), flags | _FILE, mode, dir_fd=self._opened)
        if self._hidden is not None and _is_in(self._hidden, os.fstat(handle)):
            os.close(handle)
            raise PermissionError(errno.EACCES, _REFUSED)
        return handle

    def make(self, name: str) -> None:
        """Create the folder `name`; an existing one is not changed."""
        with suppress(FileExistsError):
            os.mkdir(self._name(name), dir_fd=self._opened)

    def replace(self, old: str, new: str) -> None:
        """Rename the file `old` to `new` atomically, replacing what had that name."""
        os.replace(self._name(old), self._name(new), src_dir_fd=self._opened, dst_dir_fd=self._opened)

    def remove(self, name: str) -> None:
        """Remove the file `name`."""
        os.unlink(self._name(name), dir_fd=self._opened)

    @contextmanager
    def entries(self) -> Generator[Iterator[os.DirEntry[str]]]:
        """Yield the entries of the folder, in no order."""
        if self._opened is None:
            with os.scandir(self._path) as found:
                yield self._seen(found)
            return
        listing = os.open(".", _FOLDER, dir_fd=self._opened)
        try:
            with os.scandir(listing) as found:
                yield self._seen(found)
        finally:
            os.close(listing)

    def close(self) -> None:
        """Close the folder."""
        if self._opened is not None:
            os.close(self._opened)

    def _seen(self, found: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        hidden = None if self._hidden is None else _identity(self._hidden)
        if hidden is None:
            return found
        return (each for each in found if each.inode() != hidden[1] or _of(self.stat(each.name)) != hidden)

    def _inner(self, name: str) -> str:
        return str(Path(self._path, name))

    def _name(self, name: str) -> str:
        return name if self._opened is not None else self._inner(name)


def _of(found: os.stat_result) -> Identity:
    return (found.st_dev, found.st_ino)


def _identity(folder: Path) -> Identity | None:
    try:
        return _of(os.stat(folder))
    except OSError:  # the folder does not exist yet
        return None


def _is_in(folder: Path, found: os.stat_result) -> bool:
    """Whether a file is one of a folder's own files under another name."""
    if found.st_nlink < 2:
        return False
    try:
        with os.scandir(folder) as entries:
            return any(
                each.inode() == found.st_ino and _of(each.stat(follow_symlinks=False)) == _of(found) for each in entries
            )
    except OSError:
        return False


def _check(path: str) -> None:
    """Check that a path is a folder and passes no link; this can change right afterwards."""
    if not stat.S_ISDIR(os.lstat(path).st_mode) or os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


# --- paths ------------------------------------------------------------------------------------------------------------

T = TypeVar("T")
Parts = tuple[str, ...]

_LINKS: Final = 40
"""The maximum number of links on one path, as on Linux."""
_LONGEST: Final = 4096
"""The maximum characters of a path, as on Linux."""
_SHOWN: Final = 200
_IS_LINK: Final = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
"""The errors that systems report for a link that must not be followed."""
_ODD: Final = frozenset('<>:"|?*')
_WINDOWS: Final = os.name == "nt"


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a path: a name in an open folder. It is not a link; it need not exist.

    Attributes:
        handle: The folder.
        name: The name in it; empty if the path leads to the folder itself.
        path: The path with links resolved.
        given: The path as the caller gave it.
    """

    handle: Handle
    name: str
    path: Path
    given: str


class Roots:
    """The folders that tools can access, and everything below them.

    Args:
        folders: The folders; relative paths start at the first. Without any, every path is refused.
        hidden: A folder that tools do not see even if it is in one of the folders: the home of the agent.

    Raises:
        InvalidArgument: One of them is not a folder, or is the hidden one or below it.
    """

    def __init__(self, folders: Iterable[Path], *, hidden: Path | None = None) -> None:
        declared = [Path(os.path.abspath(folder)) for folder in folders]
        self._folders = tuple(_real(folder) for folder in declared)
        self.hidden = None if hidden is None else Path(os.path.realpath(hidden))
        for folder in self._folders:
            _refuse_below(folder, self.hidden)
        parts = {_key(folder.parts): folder for folder in self._folders}
        # A root inside a root adds nothing, and a writer above it could replace it by a link.
        self._tops = {key: each for key, each in parts.items() if not any(key[:n] in parts for n in range(len(key)))}
        aliases = [(_key(spelled.parts), real.parts) for spelled, real in zip(declared, self._folders, strict=True)]
        self._aliases = sorted(aliases, key=lambda each: len(each[0]), reverse=True)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders, as absolute paths without links."""
        return self._folders

    def folder(self, path: str = ".") -> Path:
        """Return an existing folder, such as one to run a program in.

        The path can lead to something else by the time it is used.

        Args:
            path: Relative to the first of the folders, or absolute.

        Returns:
            Its absolute path without links.

        Raises:
            PathRefused: It leads out of the folders, or there are none.
            ToolFailed: The folder does not exist.
        """
        with self.place(path, folder=True) as place:
            return place.path

    @contextmanager
    def place(self, path: str, *, folder: bool = False, make: bool = False) -> Generator[Place]:
        """Walk a path.

        Args:
            path: Relative to the first of the folders, or absolute.
            folder: Whether it must lead to a folder, which is opened.
            make: Whether to create missing folders on the way.

        Raises:
            PathRefused: It leads out of the folders, or there are none.
            ToolFailed: A folder on the way is missing, or cannot be opened.
        """
        walk = _Walk(self, self._tops, path)
        try:
            names = self._names(path)
            yield reporting_errors(path, lambda: walk.to(names + (["."] if folder else []), make=make))
        finally:
            walk.close()

    def where(self, path: str) -> str:
        """Return the path with links resolved, whether it exists or not: the same for all spellings of a path.

        Args:
            path: Relative to the first of the folders, or absolute.

        Raises:
            PathRefused: It leads out of the folders, or there are none.
            ToolFailed: A folder on the way was moved meanwhile.
        """
        names = self._names(path)
        for end in range(len(names), 0, -1):  # what is missing can be made by the time that it is used
            walk = _Walk(self, self._tops, path)
            try:
                return Path(os.path.normpath(Path(walk.to(names[:end], make=False).path, *names[end:]))).as_posix()
            except OSError:
                continue
            finally:
                walk.close()
        return Path(os.path.normpath(Path(*names))).as_posix()

    def _names(self, path: str) -> list[str]:
        """Return the names to walk, beginning at the file system's own root."""
        if not self._folders:
            raise PathRefused(
                "the tools have no folder to access", remedy="pass BuiltinTools(roots=[...]) or the setting tool_roots"
            )
        if len(path) > _LONGEST:
            raise PathRefused(f"the path {shown(path)} is too long", remedy=f"use at most {_LONGEST:,} characters")
        try:
            bad = "\0" in path or b"\0" in os.fsencode(path)
        except UnicodeEncodeError:
            bad = True
        if bad:
            raise PathRefused(f"the path {shown(path)} has a character that no name can have", remedy="remove it")
        start = [] if os.path.isabs(path) else list(self._folders[0].parts)
        return self.spelled(start + _split(path))

    def name(self, path: Path) -> str:
        """Return an absolute path as tools show and accept it: relative to the first folder if it is inside."""
        inside = self._folders and path.is_relative_to(self._folders[0])
        return readable((path.relative_to(self._folders[0]) if inside else path).as_posix())

    def spelled(self, names: list[str]) -> list[str]:
        """Replace the beginning by the real path of a folder, if the names begin as that folder was declared."""
        for key, real in self._aliases:
            if _key(names[: len(key)]) == key:
                return [*real, *names[len(key) :]]
        return names


class _Walk:
    """One walk along one path: the folder it is in, and the way there."""

    def __init__(self, roots: Roots, tops: dict[Parts, Path], given: str) -> None:
        self._roots = roots
        self._tops = tops
        self._given = given
        self._at: list[str] = []
        self._handle: Handle | None = None  # None above the roots, where nothing is opened
        self._trail: list[Identity] = []
        self._links = 0

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
            self._trail.clear()

    def to(self, names: list[str], *, make: bool) -> Place:
        todo = deque(names)
        while todo:
            name = todo.popleft()
            if name == ".":
                continue
            if _WINDOWS and self._at and _odd(name):
                raise PathRefused(
                    f"the path {shown(self._given)} has a name that Windows reads differently",
                    remedy="use the name that glob_files gives",
                )
            if name == "..":
                self._up()
            elif self._handle is None:
                self._near(name)
            elif todo:
                self._down(self._handle, name, todo, make=make)
            elif not self._linked(self._handle, name, todo):
                return Place(self._handle, name, Path(*self._at, name), self._given)
        if self._handle is None:
            self._refuse()
        return Place(self._handle, "", Path(*self._at), self._given)

    def _near(self, name: str) -> None:
        """Go down above the roots: only towards one of them."""
        self._at.append(name)
        key = _key(self._at)
        if key in self._tops:
            self._enter(Handle(str(self._tops[key]), hidden=self._roots.hidden))
        elif not any(top[: len(key)] == key for top in self._tops):
            self._refuse()

    def _down(self, handle: Handle, name: str, todo: deque[str], *, make: bool) -> None:
        inner: Handle | None = None
        try:
            inner = handle.child(name)
        except FileNotFoundError:
            if not make or ".." in todo or todo[-1] == ".":
                raise
            handle.make(name)
            inner = handle.child(name)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        if inner is not None:
            self._at.append(name)
            handle.close()
            self._enter(inner)
        elif not self._linked(handle, name, todo):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _linked(self, handle: Handle, name: str, todo: deque[str]) -> bool:
        """Whether the name is a link; if so, its target is walked next."""
        try:
            target = handle.target(name)
        except OSError:
            return False
        self._links += 1
        if self._links > _LINKS or len(target) + sum(map(len, todo)) > _LONGEST:
            raise PathRefused(f"the path {shown(self._given)} leads over too many links", remedy="name the file itself")
        names = _split(target)
        if os.path.isabs(target):
            names = self._roots.spelled(names)
            self._at.clear()
            self.close()
        todo.extendleft(reversed(names))
        return True

    def _up(self) -> None:
        if len(self._at) == 1:  # the parent of the file system's own root is that root
            return
        self._at.pop()
        if self._handle is None or len(self._trail) == 1:
            self.close()
            return
        self._trail.pop()
        below, self._handle = self._handle, self._handle.parent()
        below.close()
        if self._handle.identity != self._trail[-1]:
            raise ToolFailed(f"a folder on the path {shown(self._given)} was moved meanwhile", remedy="try again")

    def _enter(self, handle: Handle) -> None:
        self._handle = handle
        self._trail.append(handle.identity)

    def _refuse(self) -> NoReturn:
        tops = ", ".join(repr(str(top)) for top in list(self._tops.values())[:3])
        raise PathRefused(
            f"the path {shown(self._given)} leads out of the folders that tools can access",
            remedy=f"name something in {tops}",
        )


def reporting_errors(path: str, work: Callable[[], T]) -> T:
    """Run an operation on files, and turn errors of the system into errors for the model.

    Raises:
        PathRefused: A name is too long.
        ToolFailed: Anything else.
    """
    try:
        return work()
    except OSError as error:
        number, problem = error.errno, (error.strerror or type(error).__name__).lower()
    match number:
        case errno.ENOENT:
            raise ToolFailed(f"{shown(path)} does not exist", remedy="list what exists with glob_files")
        case errno.ENOTDIR:
            raise ToolFailed(
                f"a part of the path {shown(path)} is not a folder", remedy="list what exists with glob_files"
            )
        case errno.ENAMETOOLONG:
            raise PathRefused(f"the path {shown(path)} has a name that is too long", remedy="use a shorter one")
        case _:
            raise ToolFailed(f"{shown(path)} cannot be used: {problem}", remedy="use another path, or tell the user")


def shown(path: str) -> str:
    """Return a path as errors show it."""
    return repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}...")


def readable(name: str) -> str:
    """Return a name as one line of text; characters that cannot be shown are escaped as in Python."""
    return name if name.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in name)


def _real(folder: Path) -> Path:
    try:
        real = Path(os.path.realpath(folder, strict=True))
        if real.is_dir():
            return real
        problem = "it is not a folder"
    except (OSError, ValueError) as error:
        problem = str(getattr(error, "strerror", None) or type(error).__name__).lower()
    raise InvalidArgument(
        f"the root {str(folder)!r} cannot be used: {problem}", remedy="create the folder first, or omit it"
    )


def _refuse_below(folder: Path, hidden: Path | None) -> None:
    if hidden is not None and any(
        each == hidden or (hidden.exists() and each.samefile(hidden)) for each in (folder, *folder.parents)
    ):
        raise InvalidArgument(
            f"the root {str(folder)!r} is in the agent's home {str(hidden)!r}, which tools must not access",
            remedy="use a folder outside of it for tools, or another home for the agent",
        )


def _split(path: str) -> list[str]:
    """Split a path into names; the first of an absolute one is its drive or `/`."""
    if _WINDOWS:
        path = path.removeprefix("\\\\?\\").replace("/", "\\")
    anchor = Path(path).anchor if os.path.isabs(path) else ""
    names = [name for name in path[len(anchor) :].split(os.sep) if name]
    if path.endswith(os.sep):  # the path must lead to a folder
        names.append(".")
    return [anchor if _WINDOWS else os.sep, *names] if anchor else names


def _key(names: Iterable[str]) -> Parts:
    return tuple(os.path.normcase(name) for name in names)


def _odd(name: str) -> bool:
    """Whether Windows reads a name as another one, or as something other than a file."""
    return name != ".." and (name[-1] in ". " or not _ODD.isdisjoint(name))
