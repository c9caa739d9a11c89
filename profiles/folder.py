"""Reads a folder of profiles as bytes, once, so that the trusted bytes are the parsed ones. `files` parses them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..core.errors import InvalidArgument, ProfileInvalid
from ..core.files import read_regular

PROJECT_FOLDER: Final = Path(".worldagent", "profiles")
"""The folder of a project's profiles, relative to the project."""

_SUFFIXES: Final = (".yaml", ".yml")
MAX_FILE_BYTES: Final = 1 << 16  # bytes in a file: parsing a megabyte of YAML keys takes seconds
MAX_FILES: Final = 500  # files in a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFolder:
    """The content of a folder.

    Attributes:
        path: The folder; it need not exist.
        files: The content of each profile's file by its path, or the error if it cannot be read.
        problem: The error if the folder cannot be read.
    """

    path: Path
    files: Mapping[Path, bytes | ProfileInvalid] = field(default_factory=dict, repr=False)
    problem: ProfileInvalid | None = None

    @property
    def digest(self) -> str:
        """A digest of the names and contents of all files."""
        parts = [
            [path.name, hashlib.sha256(held).hexdigest() if isinstance(held, bytes) else "unreadable"]
            for path, held in sorted(self.files.items())
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find_project(start: Path | None = None) -> Path | None:
    """The project that a folder is in: the nearest folder at or above it that has a `.worldagent/profiles`.

    Args:
        start: The folder; None is the current one. If the current one was removed, the result is None.

    Raises:
        InvalidArgument: The folder does not exist or cannot be read.
    """
    try:
        folder = (start if start is not None else Path()).expanduser().resolve(strict=True)
        return next((each for each in (folder, *folder.parents) if os.path.lexists(each / PROJECT_FOLDER)), None)
    except (OSError, RuntimeError, ValueError):
        if start is None:
            return None
    raise InvalidArgument(f"the folder {str(start)[:200]!r} cannot be read", remedy="pass an existing folder")


def read_folder(path: Path, *, within: Path | None = None) -> ProfileFolder:
    """Read all files `*.yaml` and `*.yml` of a folder, except hidden ones.

    Args:
        path: The folder. A missing folder has no files.
        within: The folder that links must not lead out of; None allows all links.
    """
    problem = _link_error(path, within)
    if problem is not None:
        return ProfileFolder(path=path, problem=problem)
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES) and not name.startswith("."))
    except FileNotFoundError:
        if not os.path.islink(path):
            return ProfileFolder(path=path)
        reason = "it is a broken link"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
    else:
        if len(names) <= MAX_FILES:
            return ProfileFolder(path=path, files={path / name: _read_within(path / name, within) for name in names})
        reason = f"it has {len(names)} files, more than {MAX_FILES}"
    problem = ProfileInvalid(
        f"the profiles in {str(path)!r} cannot be read: {reason}", remedy="make it a readable folder"
    )
    return ProfileFolder(path=path, problem=problem)


def _read_within(path: Path, within: Path | None) -> bytes | ProfileInvalid:
    return _link_error(path, within) or read_one(path)


def read_one(path: Path) -> bytes | ProfileInvalid:
    """The content of a file, or why it cannot be read."""
    try:
        data = read_regular(path, MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
    else:
        if data is not None and len(data) <= MAX_FILE_BYTES:
            return data
        reason = "it is not a regular file" if data is None else f"it has more than {MAX_FILE_BYTES} bytes"
    return ProfileInvalid(f"{path}:1 cannot be read: {reason}", remedy="replace it with a readable file, or remove it")


def _link_error(path: Path, within: Path | None) -> ProfileInvalid | None:
    """The error if a link in the path leads out of the project, else None."""
    if within is None:
        return None
    try:
        if path.resolve().is_relative_to(within.resolve()):
            return None
    except (OSError, RuntimeError):  # a link that leads to itself
        pass
    return ProfileInvalid(
        f"{path}:1 cannot be read: a link leads out of the project {str(within)!r}",
        remedy="replace the link with the file itself",
    )


__all__ = ["PROJECT_FOLDER", "ProfileFolder", "find_project", "read_folder", "read_one"]
