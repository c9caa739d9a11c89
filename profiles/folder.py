"""A folder of profiles as bytes, read once: what is trusted is what is parsed. What they mean is for `files`."""

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
"""Where the profiles of a project are, below its folder."""

_SUFFIXES: Final = (".yaml", ".yml")
_LARGEST: Final = 1 << 16  # bytes of a file: reading YAML takes seconds for a megabyte of keys
_MOST: Final = 500  # files of a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFolder:
    """What a folder holds.

    Attributes:
        path: The folder; it need not be there.
        files: The content of each file of a profile, by its path, or why it cannot be read.
        problem: Why none of it can be.
    """

    path: Path
    files: Mapping[Path, bytes | ProfileInvalid] = field(default_factory=dict, repr=False)
    problem: ProfileInvalid | None = None

    @property
    def digest(self) -> str:
        """Stands for the names and contents of all files."""
        parts = [
            [path.name, hashlib.sha256(held).hexdigest() if isinstance(held, bytes) else "unreadable"]
            for path, held in sorted(self.files.items())
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find_project(start: Path | None = None) -> Path | None:
    """The project that a folder is in: the nearest one at or above it that has a folder `.worldagent/profiles`.

    Args:
        start: The folder; None is the current one, and where that is gone there is no project.

    Raises:
        InvalidArgument: There is no such folder.
    """
    try:
        folder = (start if start is not None else Path()).expanduser().resolve(strict=True)
        return next((each for each in (folder, *folder.parents) if os.path.lexists(each / PROJECT_FOLDER)), None)
    except (OSError, RuntimeError, ValueError):
        if start is None:
            return None
    raise InvalidArgument(f"{str(start)[:200]!r} is no folder that can be read", remedy="give one that is there")


def read_folder(path: Path, *, within: Path | None = None) -> ProfileFolder:
    """Read all files `*.yaml` and `*.yml` of a folder, but for hidden ones.

    Args:
        path: The folder; where there is none, there are no files.
        within: The folder that no link may lead out of; None lets links lead anywhere.
    """
    problem = _outside(path, within)
    if problem is not None:
        return ProfileFolder(path=path, problem=problem)
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES) and not name.startswith("."))
    except FileNotFoundError:
        if not os.path.islink(path):
            return ProfileFolder(path=path)
        told = "it is a link that leads nowhere"
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or type(error).__name__
    else:
        if len(names) <= _MOST:
            return ProfileFolder(path=path, files={path / name: _held(path / name, within) for name in names})
        told = f"it holds {len(names)} files, more than {_MOST}"
    problem = ProfileInvalid(
        f"the profiles in {str(path)!r} cannot be read: {told}", remedy="make it a folder that can be"
    )
    return ProfileFolder(path=path, problem=problem)


def _held(path: Path, within: Path | None) -> bytes | ProfileInvalid:
    return _outside(path, within) or read_one(path)


def read_one(path: Path) -> bytes | ProfileInvalid:
    """The content of a file, or why it cannot be read."""
    try:
        data = read_regular(path, _LARGEST + 1)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or type(error).__name__
    else:
        if data is not None and len(data) <= _LARGEST:
            return data
        told = "it is no regular file" if data is None else f"it has more than {_LARGEST} bytes"
    return ProfileInvalid(f"{path}:1 cannot be read: {told}", remedy="put a file there that can be, or take it away")


def _outside(path: Path, within: Path | None) -> ProfileInvalid | None:
    """Why something is not read that a link leads out of a project for."""
    if within is None:
        return None
    try:
        if path.resolve().is_relative_to(within.resolve()):
            return None
    except (OSError, RuntimeError):  # a link that leads to itself
        pass
    return ProfileInvalid(
        f"{path}:1 cannot be read: a link leads out of the project {str(within)!r}",
        remedy="put the file itself there",
    )


__all__ = ["PROJECT_FOLDER", "ProfileFolder", "find_project", "read_folder", "read_one"]
