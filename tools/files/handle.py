"""One open folder, and operations on the names in it that never follow a link.

If the system has calls relative to an open folder (Linux, macOS), a folder can be moved, or replaced by a link,
after it was opened without effect. Windows has no such calls: there each name is checked right before it is used, and
a program that replaces it between these two steps gets past the check. `roots` decides what a path means.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
        try:
            os.mkdir(self._name(name), dir_fd=self._opened)
        except FileExistsError:
            return

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


__all__ = ["Handle", "Identity"]
