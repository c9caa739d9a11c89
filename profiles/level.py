"""One place that profiles come from: built-in, the user's, a project's. What goes over what is for `catalogue`.

A file is parsed when a name asks for it. A profile may be called otherwise than its file, so bytes are searched first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from ..core.errors import ProfileInvalid, UsageError
from .file import ProfileFile
from .folder import ProfileFolder

LevelName = Literal["built-in", "user", "project"]

_IN_NAMES: Final = rb"[A-Za-z0-9_-]"


class Level:
    """The profiles of one place.

    Args:
        name: Which place.
        folder: Reads it.
        refused: Says why none of its profiles may be used, though they can be read; None where they may.
    """

    def __init__(
        self,
        name: LevelName,
        folder: Callable[[], ProfileFolder],
        refused: Callable[[ProfileFolder], UsageError | None] = lambda _: None,
    ) -> None:
        self.name: Final = name
        self._read = folder
        self._refuses = refused
        self._parsed: dict[Path, ProfileFile] = {}

    @cached_property
    def folder(self) -> ProfileFolder:
        """What is there, as it was when it was first asked for."""
        return self._read()

    @cached_property
    def refused(self) -> UsageError | None:
        """Why nothing of it may be used."""
        return self._refuses(self.folder) if self.folder.files else None

    def named(self, name: str) -> Sequence[ProfileFile]:
        """The files whose profile has this name: one, or none; several are a mistake."""
        # However YAML writes a name down, its letters stand together, unless one of them is escaped.
        spelt = re.compile(rb"(?<!%b)%b(?!%b)" % (_IN_NAMES, re.escape(name.encode(errors="replace")), _IN_NAMES))
        likely = [
            path
            for path, held in self.folder.files.items()
            if path.stem == name
            or (isinstance(held, bytes) and (b"\\" in held or (b"name" in held and spelt.search(held))))
        ]
        return [file for file in map(self._file, likely) if file.name == name]

    def all(self) -> Iterator[ProfileFile]:
        """Every file, those that are broken too."""
        return map(self._file, self.folder.files)

    def at(self, path: Path) -> ProfileFile | None:
        """The file that is at a path, if it is one of these."""
        found = [each for each in self.folder.files if each.name == path.name]
        return self._file(found[0]) if found and os.path.realpath(found[0]) == os.path.realpath(path) else None

    def _file(self, path: Path) -> ProfileFile:
        if path not in self._parsed:
            self._parsed[path] = parsed(path, self.folder.files[path])
        return self._parsed[path]


def parsed(path: Path, held: bytes | ProfileInvalid) -> ProfileFile:
    """What a file says, or why it cannot be read.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    if isinstance(held, ProfileInvalid):
        return ProfileFile(path=path, name=path.stem, where=f"{path}:1", problems=(held,))
    from .files import read_profile

    return read_profile(path, held)


__all__ = ["Level", "LevelName", "parsed"]
