"""Finds the files of a folder to search, and whether one has changed. `index_rows` stores their texts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from ...core.errors import InvalidArgument, PathRefused, ToolFailed
from ..files import Roots

_LOOKED_AT: Final = 500_000  # names of files and folders

LARGEST: Final = 2 << 20
"""Bytes of a file that are read."""

SUFFIXES: Final = (".adoc", ".htm", ".html", ".md", ".org", ".rst", ".tex", ".txt")
"""The suffixes of the file names that are found in folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that can be searched.

    Attributes:
        place: Its path.
        source: The folder that it was found in.
        stamp: Changes when the file changes.
        size: Its bytes, as far as they are read.
        roots: The folder that reading it never leaves.
        name: Its path in that folder.
    """

    place: str
    source: str
    stamp: str
    size: int
    roots: Roots = field(repr=False)
    name: str


def find_files(sources: Sequence[str], *, suffixes: tuple[str, ...], files: int, size: int) -> list[Found]:
    """Find the files in folders, in a stable order. Hidden files and links are skipped.

    A link within a folder leads to a file that is found anyway; one that leads out does not belong to the folder.

    Args:
        sources: Folders, or single files.
        suffixes: The suffixes of file names in folders.
        files: How many files at most.
        size: How many bytes at most.
    """
    found: dict[str, Found] = {}
    for source, base, roots, path in islice(_all(sources, suffixes), _LOOKED_AT):
        made = None if not path or path in found else _found(path, source, os.path.relpath(path, base), roots)
        if made is None:
            continue
        size -= made.size
        if len(found) >= files or size < 0:
            break
        found[path] = made
    return list(found.values())


def read_file(found: Found) -> bytes | None:
    """Read a file's beginning; returns None if it no longer exists, or is now a link or behind one."""
    try:
        with found.roots.place(found.name) as place:
            if place.path != found.roots.folders[0] / found.name:  # the path passes a link
                return None
            handle = place.handle.open(place.name, os.O_RDONLY)
    except (OSError, PathRefused, ToolFailed):
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            return file.read(LARGEST) if stat.S_ISREG(os.fstat(handle).st_mode) else None
        except OSError:
            return None


def _all(sources: Sequence[str], suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, Roots, str]]:
    """Yield each source, its folder by name and as `Roots`, and a path in it, which can be empty."""
    for source in sources:
        real = os.path.realpath(source)
        file = os.path.isfile(real)
        try:
            roots = Roots([Path(real).parent if file else Path(real)])
        except InvalidArgument:  # it no longer exists, or is neither a file nor a folder
            continue
        for path in (real,) if file else _paths(source, suffixes):
            yield source, os.path.dirname(real) if file else source, roots, path


def _paths(source: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths in a folder, and an empty string for each skipped one, since that counts too."""
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield ""
        for name in sorted(names):
            wanted = not name.startswith(".") and name.lower().endswith(suffixes)
            yield os.path.join(folder, name) if wanted else ""


def _found(path: str, source: str, name: str, roots: Roots) -> Found | None:
    try:
        path.encode()
        about = os.lstat(path)
    except (OSError, UnicodeEncodeError):  # it no longer exists, or its name is not valid text
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    stamp = f"{about.st_mtime_ns}:{about.st_size}"
    size = min(about.st_size, LARGEST)
    return Found(place=path, source=source, stamp=stamp, size=size, roots=roots, name=name)


__all__ = ["LARGEST", "SUFFIXES", "Found", "find_files", "read_file"]
