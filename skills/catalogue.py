"""Finds skill packages: the user's, a trusted project's, and those in an agent's own folders (T6)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

from ..core.errors import InvalidArgument, SkillInvalid
from ..harness.trust import SKILLS_FOLDER, ProjectTrust, scan, user_folder
from ..harness.yaml import near
from .package import SKILL_FILE, SkillHeader, SkillPackage, judge_package, read_package, skill_file

LevelName = Literal["host", "user", "project", "given"]

EXAMPLES: Final = Path(__file__).parent / "examples"
"""The folder of the skills that ship as examples: pass it as one of the folders to use them."""

MAX_SKILLS: Final = 500  # packages in a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEntry:
    """A package in one of the folders.

    Attributes:
        name: Its name; that of its folder if it cannot be used.
        level: Where it is from.
        folder: Its folder.
        used: Whether its name refers to this package, and no later folder has one of the same name.
        header: Its name, description and so on; None if it cannot be used.
        problems: Why it cannot be used, such as files that cannot be read.
    """

    name: str
    level: LevelName
    folder: Path
    used: bool
    header: SkillHeader | None = None
    problems: tuple[SkillInvalid, ...] = ()


class SkillCatalogue:
    """Skills by name. Until `load` reads a package, only its front matter is read, and the names of its files.

    Args:
        folders: The folders that have packages in them, with their level. A later one overrides an earlier one.
        versions: The versions of packages that are trusted, by folder; a package that has none is not compared.
    """

    def __init__(self, folders: Sequence[tuple[LevelName, Path]], versions: Mapping[Path, str] | None = None) -> None:
        self._folders = tuple(folders)
        self._versions = dict(versions or {})

    @classmethod
    def open(
        cls,
        folders: Sequence[Path] = (),
        *,
        user: Path | None = None,
        project: Path | None = None,
        trust: Path | None = None,
    ) -> Self:
        """Find the user's packages, a project's if it is trusted, and those in given folders.

        Args:
            folders: Further folders, each with packages in it.
            user: The user's folder; None is `skills` in the user's configuration folder.
            project: A project. The packages in its folder `.worldagent/skills` count if it is trusted.
            trust: The file of trusted projects; None is `trusted.json` in the user's configuration folder.

        Raises:
            InvalidArgument: One of `folders` is not a folder.
            ProfileUntrusted: The file of trusted projects cannot be read.
        """
        own = user.expanduser() if user is not None else user_folder() / "skills"
        levels: list[tuple[LevelName, Path]] = [("user", own)]
        versions: Mapping[Path, str] = {}
        if project is not None and (trusted := ProjectTrust(trust).trusted_skills(project)) is not None:
            levels.append(("project", project / SKILLS_FOLDER))
            versions = trusted
        return cls([*levels, *_given(folders)], versions)

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Self:
        """Find the packages in given folders, and no others.

        Args:
            folders: The folders, each with packages in it.

        Raises:
            InvalidArgument: One of them is not a folder.
        """
        return cls(_given(folders))

    def with_hosts(self, folders: Sequence[Path]) -> SkillCatalogue:
        """The same skills and those of MCP servers, which all others override.

        Args:
            folders: A folder for each server.
        """
        hosts: list[tuple[LevelName, Path]] = [("host", folder) for folder in folders]
        return SkillCatalogue([*hosts, *self._folders], self._versions)

    @cached_property
    def entries(self) -> tuple[SkillEntry, ...]:
        """Every package by name, including those that are overridden or cannot be used.

        Raises:
            SkillInvalid: A folder cannot be read.
            MissingExtra: The extra `yaml` is not installed.
        """
        found = [self._entry(level, folder) for level, folder in self._packages()]
        last = {each.name: each.folder for each in found}
        used = (replace(each, used=last[each.name] == each.folder) for each in found)
        return tuple(sorted(used, key=lambda each: each.name))

    @property
    def usable(self) -> tuple[SkillHeader, ...]:
        """The names and descriptions of all skills that can be used, by name."""
        return tuple(each.header for each in self.entries if each.used and each.header is not None)

    def meant(self, name: str) -> str:
        """The begin of a remedy for a name that no skill has: the folder of this name, or a similar name."""
        for entry in self.entries:
            if entry.folder.name == name != entry.name:
                return f"the skill in the folder {name!r} is called {entry.name!r}; "
        return near(name, [header.name for header in self.usable])

    def load(self, name: str) -> SkillPackage:
        """Read a skill's package.

        Args:
            name: The name of the skill.

        Raises:
            SkillInvalid: There is no such skill, it breaks a rule of the format, or it changed after its project was
                trusted.
            MissingExtra: The extra `yaml` is not installed.
        """
        entry = next((each for each in self.entries if each.used and each.name == name), None)
        if entry is None:
            names = [each.name for each in self.entries if each.used]
            raise SkillInvalid(
                f"there is no skill {str(name)[:100]!r}",
                remedy=f"{self.meant(name)}the skills are: {', '.join(names) or 'none'}",
            )
        package = read_package(entry.folder, scripts=entry.level != "host")
        if self._versions.get(entry.folder, package.version) != package.version:
            raise SkillInvalid(
                f"the skill {name!r} has changed since its project was trusted",
                remedy="review it, then run `worldagent trust add` again",
            )
        return package

    def _packages(self) -> Iterator[tuple[LevelName, Path]]:
        for level, folder in self._folders:
            for path in package_folders(folder):
                yield level, path

    def _entry(self, level: LevelName, folder: Path) -> SkillEntry:
        header, problems = judge_package(folder)
        name = folder.name if header is None else header.name
        return SkillEntry(name=name, level=level, folder=folder, used=True, header=header, problems=problems)


def _given(folders: Sequence[Path]) -> list[tuple[LevelName, Path]]:
    found: list[tuple[LevelName, Path]] = []
    for folder in map(Path.expanduser, folders):
        if not folder.is_dir():
            raise InvalidArgument(
                f"{str(folder)[:200]!r} is not a folder of skills",
                remedy=f"pass a folder that has a folder NAME with a {SKILL_FILE} for each skill",
            )
        found.append(("given", folder))
    return found


def package_folders(folder: Path) -> Sequence[Path]:
    """The folders in a folder that have a SKILL.md. A missing folder has none.

    Raises:
        SkillInvalid: The folder cannot be read, or has too many packages.
    """
    if not os.path.lexists(folder):
        return ()
    names = sorted(entry.name for entry in scan(folder) if not entry.name.startswith("."))
    found = [folder / name for name in names if skill_file(folder / name) is not None]
    if len(found) > MAX_SKILLS:
        raise SkillInvalid(
            f"{str(folder)!r} has {len(found)} skills", remedy=f"keep it to {MAX_SKILLS}, or use several folders"
        )
    return found
