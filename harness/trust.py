"""Which projects a user trusts with their profiles and skills. A change of a file ends the trust (P6), as with direnv.

A project's profile names programs to start and tools to use, and its skills have instructions and scripts. So neither
has an effect before the user trusts the project.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ..core.errors import InvalidArgument, ProfileInvalid, ProfileUntrusted, SkillInvalid
from ..core.files import read_limited, read_regular, replace_file

PROJECT_FOLDER: Final = Path(".worldagent", "profiles")
"""The folder of a project's profiles, relative to the project."""

SKILLS_FOLDER: Final = Path(".worldagent", "skills")
"""The folder of a project's skills, relative to the project."""

_SUFFIXES: Final = (".yaml", ".yml")
MAX_PROFILE_BYTES: Final = 1 << 16  # bytes in a file: parsing a megabyte of YAML keys takes seconds
MAX_FILES: Final = 500  # profiles in a folder
MAX_TREE_FILES: Final = 20_000  # files of all skills in a folder
MAX_TREE_FILE_BYTES: Final = 64 << 20  # bytes in one of them


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
    """The project that a folder is in: the nearest one at or above it that has `.worldagent/profiles` or `/skills`.

    Args:
        start: The folder; None is the current one. If the current one was removed, the result is None.

    Raises:
        InvalidArgument: The folder does not exist or cannot be read.
    """
    try:
        folder = (start if start is not None else Path()).expanduser().resolve(strict=True)
        return next((each for each in (folder, *folder.parents) if _is_project(each)), None)
    except (OSError, RuntimeError, ValueError):
        if start is None:
            return None
    raise InvalidArgument(f"the folder {str(start)[:200]!r} cannot be read", remedy="pass an existing folder")


def _is_project(folder: Path) -> bool:
    return any(os.path.lexists(folder / each) for each in (PROJECT_FOLDER, SKILLS_FOLDER))


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


# --- trees of files ---------------------------------------------------------------------------------------------------


def tree_files(folder: Path) -> Mapping[str, str]:
    """All files at any depth of a folder by their relative path, each with a digest.

    A digest covers the content of a file and whether it is executable.

    Args:
        folder: The folder. A missing one has no files.

    Raises:
        SkillInvalid: A file cannot be read, a link leads out of the folder, or there are too many files.
    """
    found: dict[str, str] = {}
    for name, path in _tree(folder):
        mark = "x" if os.access(path, os.X_OK) else "-"
        found[name] = mark + hashlib.sha256(read_tree_file(path)).hexdigest()
    return dict(sorted(found.items()))


def check_tree(folder: Path) -> None:
    """Refuse a folder that `tree_files` would refuse, without reading its files.

    Args:
        folder: The folder. A missing one has no files.

    Raises:
        SkillInvalid: As for `tree_files`.
    """
    for _, path in _tree(folder):
        try:
            size = os.stat(path).st_size
        except OSError:
            size = MAX_TREE_FILE_BYTES + 1
        if not os.path.isfile(path) or size > MAX_TREE_FILE_BYTES or not os.access(path, os.R_OK):
            read_tree_file(path)  # raises the error


def _tree(folder: Path) -> Iterator[tuple[str, Path]]:
    """All files at any depth of a folder, with their relative paths."""
    root = Path(os.path.realpath(folder))
    for count, path in enumerate(_walk(root) if os.path.lexists(folder) else ()):
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise SkillInvalid(
                f"{path} is a link that leads out of its folder", remedy="replace it with the file itself"
            )
        if count == MAX_TREE_FILES:
            raise SkillInvalid(
                f"{str(folder)!r} has more than {MAX_TREE_FILES} files", remedy="remove what the skills do not use"
            )
        yield path.relative_to(root).as_posix(), path


def tree_digest(files: Mapping[str, str]) -> str:
    """One digest of files with their digests, whatever their order."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def read_tree_file(path: Path, most: int = MAX_TREE_FILE_BYTES) -> bytes:
    """The content of a file.

    Args:
        path: The file.
        most: How many bytes it can have.

    Raises:
        SkillInvalid: It cannot be read.
    """
    found = read_limited(path, most)
    if isinstance(found, bytes):
        return found
    raise SkillInvalid(f"{path} cannot be read: {found}", remedy="replace it with a readable file, or remove it")


def scan(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder.

    Args:
        folder: The folder.

    Raises:
        SkillInvalid: It cannot be read.
    """
    try:
        return list(os.scandir(folder))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise SkillInvalid(f"{str(folder)!r} cannot be read: {reason}", remedy="make it a readable folder")


def _walk(folder: Path) -> Iterator[Path]:
    """Everything below a folder that is not a folder. A link to a folder counts as a file, and cannot be read."""
    for entry in sorted(scan(folder), key=lambda each: each.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        else:
            yield Path(entry.path)


# --- trust ------------------------------------------------------------------------------------------------------------

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
        """Whether a project's profiles and skills are trusted as they are now.

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
        return "trusted" if known == project_digest(project, folder) else "changed"

    def trusted_skills(self, project: Path) -> Mapping[Path, str] | None:
        """The versions of a project's skills by their folders; None if the project is not trusted as it is now.

        Args:
            project: The project's folder.

        Raises:
            ProfileUntrusted: The file of trusted projects cannot be read.
        """
        folder = project / SKILLS_FOLDER
        try:
            files = tree_files(folder)
        except SkillInvalid:
            return None
        if self._read().get(_key(project)) != _digest(project_folder(project), tree_digest(files) if files else ""):
            return None
        packages: dict[Path, dict[str, str]] = {}
        for path, mark in files.items():
            name, _, rest = path.partition("/")
            packages.setdefault(folder / name, {})[rest] = mark
        return {path: tree_digest(own) for path, own in packages.items()}

    def projects(self) -> tuple[Path, ...]:
        """The trusted projects, including those that have changed since.

        Raises:
            ProfileUntrusted: The file of trusted projects cannot be read.
        """
        return tuple(Path(each) for each in sorted(self._read()))

    def trust(self, project: Path, *, digest: str | None = None) -> str:
        """Trust a project's profiles and skills as they are now.

        Args:
            project: The project's folder.
            digest: The `project_digest` of what the user has seen; None trusts what is there now.

        Returns:
            The digest of what is trusted.

        Raises:
            InvalidArgument: The project has neither profiles nor skills.
            ProfileInvalid: The folder of profiles cannot be read, or a link in it leads out of the project.
            SkillInvalid: A file of a skill cannot be read, or a link leads out of the folder of skills.
            ProfileUntrusted: A profile or a skill has changed since the user saw it, or the file of trusted projects
                cannot be read or written.
        """
        folder = project_folder(project)
        if folder.problem is not None:
            raise folder.problem
        skills = tree_files(project / SKILLS_FOLDER)
        if not folder.files and not skills:
            raise InvalidArgument(
                f"the project {str(project)!r} has no profiles and no skills",
                remedy=f"put files called NAME.yaml into {folder.path}, or a skill into {project / SKILLS_FOLDER}",
            )
        now = _digest(folder, tree_digest(skills) if skills else "")
        if digest is not None and digest != now:
            raise ProfileUntrusted(
                f"the profiles or skills of the project {str(project)!r} have changed since they were shown",
                remedy="review them again",
            )
        self._change(_key(project), now)
        return now

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
            remedy="remove the file, and run `worldagent trust add` in each project again",
        )


def trust_error(trust: ProjectTrust, project: Path, folder: ProfileFolder) -> ProfileUntrusted | None:
    """The error if a project's profiles are not trusted, else None."""
    try:
        standing = trust.standing(project, folder)
    except ProfileUntrusted as error:
        return error
    if standing == "trusted":
        return None
    reason = "are not trusted" if standing == "unknown" else "or skills have changed since they were trusted"
    return ProfileUntrusted(
        f"the profiles of the project {str(project)!r} {reason}",
        remedy=f"review them, then run `worldagent trust add {shlex.quote(str(project))}`",
    )


def project_digest(project: Path, folder: ProfileFolder | None = None) -> str:
    """One digest of a project's profiles and skills. Without skills it is that of the profiles.

    Args:
        project: The project's folder.
        folder: Its profiles, if the caller has read them.
    """
    try:
        files = tree_files(project / SKILLS_FOLDER)
    except SkillInvalid:
        return _digest(folder or project_folder(project), "unreadable")
    return _digest(folder or project_folder(project), tree_digest(files) if files else "")


def _digest(folder: ProfileFolder, skills: str) -> str:
    return hashlib.sha256(f"{folder.digest} {skills}".encode()).hexdigest() if skills else folder.digest


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
