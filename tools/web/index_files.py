"""Which files of a folder a search may find, and whether one has changed. What is kept of them is in `index_rows`."""

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
"""How the names of files end that are found in folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that can be searched.

    Attributes:
        place: Its path.
        source: The folder that it was found in.
        stamp: Another text, where it has changed.
        size: Its bytes, as far as they are read.
        roots: The folder that reading it does not leave.
        name: Its path in that folder.
    """

    place: str
    source: str
    stamp: str
    size: int
    roots: Roots = field(repr=False)
    name: str


def find_files(sources: Sequence[str], *, suffixes: tuple[str, ...], files: int, size: int) -> list[Found]:
    """The files in folders, in an order that does not change. Hidden ones are passed over, and so is every link.

    A link within a folder leads to what is found without it; one that leads out is none of it.

    Args:
        sources: Folders, or single files.
        suffixes: How names in folders must end.
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
    """A file's beginning; None where there is none any more, or a link stands in its place or on the way to it."""
    try:
        with found.roots.place(found.name) as place:
            if place.path != found.roots.folders[0] / found.name:  # over a link
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
    """Each source, the folder that it is or is in by name and as `Roots`, and a path in it, which may be empty."""
    for source in sources:
        real = os.path.realpath(source)
        file = os.path.isfile(real)
        try:
            roots = Roots([Path(real).parent if file else Path(real)])
        except InvalidArgument:  # it is gone, or neither a file nor a folder
            continue
        for path in (real,) if file else _paths(source, suffixes):
            yield source, os.path.dirname(real) if file else source, roots, path


def _paths(source: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The paths in a folder, empty for what is passed over: it counts too."""
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
    except (OSError, UnicodeEncodeError):  # gone, or a name that no text can hold
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    stamp = f"{about.st_mtime_ns}:{about.st_size}"
    size = min(about.st_size, LARGEST)
    return Found(place=path, source=source, stamp=stamp, size=size, roots=roots, name=name)


__all__ = ["LARGEST", "SUFFIXES", "Found", "find_files", "read_file"]
