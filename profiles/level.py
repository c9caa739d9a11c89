"""One source of profiles: built-in, the user's, or a project's. `catalogue` decides which one overrides which.

A file is parsed when a profile is looked up. Its name can differ from the file's, so the bytes are searched first.
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
    """The profiles of one source.

    Args:
        name: The name of the source.
        folder: Reads its folder.
        refused: Returns the error if its profiles must not be used, although they can be read; otherwise None.
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
        """The content of the folder, read on first use."""
        return self._read()

    @cached_property
    def refused(self) -> UsageError | None:
        """The error if its profiles must not be used."""
        return self._refuses(self.folder) if self.folder.files else None

    def named(self, name: str) -> Sequence[ProfileFile]:
        """The files whose profile has this name: one or none, or several by mistake."""
        # In every notation of YAML the letters of a name are adjacent, unless one of them is escaped.
        spelt = re.compile(rb"(?<!%b)%b(?!%b)" % (_IN_NAMES, re.escape(name.encode(errors="replace")), _IN_NAMES))
        likely = [
            path
            for path, content in self.folder.files.items()
            if path.stem == name
            or (isinstance(content, bytes) and (b"\\" in content or (b"name" in content and spelt.search(content))))
        ]
        return [file for file in map(self._file, likely) if file.name == name]

    def all(self) -> Iterator[ProfileFile]:
        """Every file, including broken ones."""
        return map(self._file, self.folder.files)

    def at(self, path: Path) -> ProfileFile | None:
        """The file at a path, if it belongs to this source."""
        found = [each for each in self.folder.files if each.name == path.name]
        return self._file(found[0]) if found and os.path.realpath(found[0]) == os.path.realpath(path) else None

    def _file(self, path: Path) -> ProfileFile:
        if path not in self._parsed:
            self._parsed[path] = parsed(path, self.folder.files[path])
        return self._parsed[path]


def parsed(path: Path, content: bytes | ProfileInvalid) -> ProfileFile:
    """The content of a file, or why it cannot be read.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    if isinstance(content, ProfileInvalid):
        return ProfileFile(path=path, name=path.stem, where=f"{path}:1", problems=(content,))
    from .files import read_profile

    return read_profile(path, content)


__all__ = ["Level", "LevelName", "parsed"]
