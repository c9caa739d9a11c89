"""Which projects' profiles a user trusts. A change of a file ends the trust (P6), as with direnv.

A project's profile names programs to start and tools to use, so it has no effect before the user trusts it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ..core.errors import InvalidArgument, ProfileInvalid, ProfileUntrusted
from ..core.files import read_limited, read_regular, replace_file

PROJECT_FOLDER: Final = Path(".worldagent", "profiles")
"""The folder of a project's profiles, relative to the project."""

_SUFFIXES: Final = (".yaml", ".yml")
MAX_PROFILE_BYTES: Final = 1 << 16  # bytes in a file: parsing a megabyte of YAML keys takes seconds
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
            files = {path / name: _link_error(path / name, within) or read_one(path / name) for name in names}
            return ProfileFolder(path=path, files=files)
        reason = f"it has {len(names)} files, more than {MAX_FILES}"
    problem = ProfileInvalid(
        f"the profiles in {str(path)!r} cannot be read: {reason}", remedy="make it a readable folder"
    )
    return ProfileFolder(path=path, problem=problem)


def read_one(path: Path) -> bytes | ProfileInvalid:
    """The content of a file, or why it cannot be read."""
    data = read_limited(path, MAX_PROFILE_BYTES)
    if isinstance(data, bytes):
        return data
    return ProfileInvalid(f"{path}:1 cannot be read: {data}", remedy="replace it with a readable file, or remove it")


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


Standing = Literal["trusted", "changed", "unknown"]

_VERSION: Final = 1
MAX_FILE_BYTES: Final = 16 << 20  # bytes
LOCK_TIMEOUT_SECONDS: Final = 10.0  # seconds for another writer


class ProjectTrust:
    """The projects that a user trusts, in a file that only the user can write.

    Args:
        file: The file; None is `trusted.json` in the user's configuration folder.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._given = file

    @property
    def file(self) -> Path:
        """The path of the file."""
        return self._given if self._given is not None else user_folder() / "trusted.json"

    def is_trusted(self, project: Path) -> bool:
        """Whether a project's profiles are trusted as they are now.

        Raises:
            ProfileUntrusted: The file of trusted projects cannot be read.
        """
        return self.standing(project) == "trusted"

    def standing(self, project: Path, folder: ProfileFolder | None = None) -> Standing:
        """The trust status of a project.

        Args:
            project: The project's folder.
            folder: Its profiles, if the caller has read them.

        Raises:
            ProfileUntrusted: The file of trusted projects cannot be read.
        """
        known = self._read().get(_key(project))
        if known is None:
            return "unknown"
        return "trusted" if known == (folder or project_folder(project)).digest else "changed"

    def trust(self, project: Path, *, digest: str | None = None) -> str:
        """Trust a project's profiles as they are now.

        Args:
            project: The project's folder.
            digest: The digest of the profiles that the user has seen; None trusts the current ones.

        Returns:
            The digest of the trusted profiles.

        Raises:
            InvalidArgument: The project has no profiles.
            ProfileInvalid: The folder of profiles cannot be read, or a link in it leads out of the project.
            ProfileUntrusted: The profiles have changed since the user saw them, or the file of trusted projects cannot
                be read or written.
        """
        folder = project_folder(project)
        if folder.problem is not None:
            raise folder.problem
        if not folder.files:
            raise InvalidArgument(
                f"the project {str(project)!r} has no profiles", remedy=f"put files called NAME.yaml into {folder.path}"
            )
        if digest is not None and digest != folder.digest:
            raise ProfileUntrusted(
                f"the profiles of the project {str(project)!r} have changed since they were shown",
                remedy="review them again",
            )
        self._change(_key(project), folder.digest)
        return folder.digest

    def untrust(self, project: Path) -> bool:
        """Stop trusting a project.

        Returns:
            Whether it was trusted, even if its profiles have changed since.

        Raises:
            ProfileUntrusted: The file of trusted projects cannot be read or written.
        """
        return self._change(_key(project), None)

    def _change(self, key: str, digest: str | None) -> bool:
        """Write or remove one entry. Entries that other processes write at the same time are kept."""
        from filelock import FileLock, Timeout

        file, reason = self.file, ""
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(f"{file}.lock", timeout=LOCK_TIMEOUT_SECONDS, mode=0o600):
                known = dict(self._read())
                was = known.pop(key, None)
                if digest is not None:
                    known[key] = digest
                if digest != was:
                    record = {"version": _VERSION, "projects": dict(sorted(known.items()))}
                    replace_file(file, json.dumps(record, indent=2).encode("ascii"))
            return was is not None
        except Timeout:
            reason = "another process keeps it locked"
        except OSError as error:
            reason = error.strerror or type(error).__name__
        raise ProfileUntrusted(
            f"{str(file)!r} cannot be written: {reason}", remedy="make its folder writable and try again"
        )

    def _read(self) -> Mapping[str, str]:
        """The digests by project."""
        reason, file = "", self.file
        try:
            said = os.stat(file)
            if hasattr(os, "getuid") and (said.st_uid != os.getuid() or said.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
                reason = "other users can write it"
            else:
                projects = _projects(read_regular(file, MAX_FILE_BYTES))
                if projects is not None:
                    return projects
                reason = "this version of worldagent did not write it"
        except FileNotFoundError:
            return {}
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except (ValueError, RecursionError):
            reason = "it is not JSON"
        raise ProfileUntrusted(
            f"the trusted projects cannot be read from {str(file)!r}: {reason}",
            remedy="remove the file, and run `worldagent profiles trust` in each project again",
        )


def trust_error(trust: ProjectTrust, project: Path, folder: ProfileFolder) -> ProfileUntrusted | None:
    """The error if a project's profiles are not trusted, else None."""
    try:
        standing = trust.standing(project, folder)
    except ProfileUntrusted as error:
        return error
    if standing == "trusted":
        return None
    reason = "are not trusted" if standing == "unknown" else "have changed since they were trusted"
    return ProfileUntrusted(
        f"the profiles of the project {str(project)!r} {reason}",
        remedy=f"review them, then run `worldagent profiles trust {shlex.quote(str(project))}`",
    )


def project_folder(project: Path) -> ProfileFolder:
    """The profiles of a project. Links in its folder must not lead out of the project."""
    return read_folder(project / PROJECT_FOLDER, within=project)


def user_folder() -> Path:
    """The user's configuration folder of this package."""
    import platformdirs

    return platformdirs.user_config_path("worldagent", appauthor=False)


def _key(project: Path) -> str:
    return str(project.resolve())


def _projects(data: bytes | None) -> dict[str, str] | None:
    known = json.loads(data) if data is not None else None
    projects = known.get("projects") if isinstance(known, dict) and known.get("version") == _VERSION else None
    return projects if isinstance(projects, dict) and all(isinstance(each, str) for each in projects.values()) else None
