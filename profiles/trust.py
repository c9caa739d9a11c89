"""Which projects' profiles a user trusts. A change of a file ends the trust (P6), as with direnv.

A project's profile names programs to start and tools to use, so it has no effect before the user trusts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from ..core.errors import InvalidArgument, ProfileUntrusted
from ..core.files import read_regular
from .folder import PROJECT_FOLDER, ProfileFolder, read_folder

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
        return self._given if self._given is not None else _user_folder() / "trusted.json"

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
                    _write(file, known)
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


def _user_folder() -> Path:
    import platformdirs

    return platformdirs.user_config_path("worldagent", appauthor=False)


def _key(project: Path) -> str:
    return str(project.resolve())


def _projects(data: bytes | None) -> dict[str, str] | None:
    known = json.loads(data) if data is not None else None
    projects = known.get("projects") if isinstance(known, dict) and known.get("version") == _VERSION else None
    return projects if isinstance(projects, dict) and all(isinstance(each, str) for each in projects.values()) else None


def _forget(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)


def _write(file: Path, known: Mapping[str, str]) -> None:
    """Replace the file atomically. Only its owner can read it."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    with contextlib.ExitStack() as undo:
        undo.callback(_forget, name)
        with os.fdopen(handle, "w", encoding="ascii") as draft:
            json.dump({"version": _VERSION, "projects": dict(sorted(known.items()))}, draft, indent=2)
            draft.flush()
            os.fsync(draft.fileno())
        os.replace(name, file)
        undo.pop_all()


__all__ = ["ProjectTrust", "Standing", "project_folder", "trust_error"]
