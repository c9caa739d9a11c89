"""All profiles by name. The user's override built-in ones, and a project's override both. `agent` applies a profile."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Self

from ..core.errors import InvalidArgument, ProfileInvalid, UsageError
from ..harness.trust import ProfileFolder, ProjectTrust, project_folder, read_folder, read_one, trust_error, user_folder
from ..harness.yaml import near
from .profile import GENERAL, Profile, ProfileFile, Setting, effective

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
    from .loading import read_profile

    return read_profile(path, content)


BUILTIN_FOLDER: Final = Path(__file__).parent / "builtin"
_FILE: Final = BUILTIN_FOLDER / f"{GENERAL}.yaml"

GENERAL_PROFILE: Final = effective(
    [
        ProfileFile(
            path=_FILE,
            name=GENERAL,
            where=f"{_FILE}:1",
            settings={
                ("description",): Setting(
                    value="all-purpose; the agent as it is without a profile", where=f"{_FILE}:2"
                ),
                ("verification", "enabled"): Setting(value=False, where=f"{_FILE}:4"),
            },
        )
    ]
)
"""The profile that changes nothing (P3)."""


_GLOB: Final = frozenset("*?[")
MAX_SHOWN_CHARACTERS: Final = 80
MAX_PROBLEMS: Final = 20  # the most problems that are reported


def check_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> None:
    """Refuse a tool that does not exist. A glob can match nothing, because its tools may be added later.

    Args:
        profile: The profile.
        known: The names of all existing tools.
        prefixes: The prefixes of the names of MCP servers' tools. The prefixes of the profile's own servers are added.

    Raises:
        ProfileInvalid: The profile names an unknown tool; the text has the line and a similar name.
    """
    for problem in unknown_tools(profile, known, prefixes):
        raise problem


def unknown_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> Sequence[ProfileInvalid]:
    """The errors of `check_tools` for all unknown tools."""
    names = tuple(known)
    beginnings = (*prefixes, *(entry.prefix_as(name) for name, entry in profile.mcp_servers.items()))
    found = (
        ProfileInvalid(
            f"{profile.sources.get(f'tools.{place}', f'the profile {profile.name!r}')}: there is no tool "
            f"{name[:MAX_SHOWN_CHARACTERS]!r}",
            remedy=f"{near(name, names)}the tools are: {', '.join(names)}",
        )
        for place, name in enumerate(profile.tools or ())
        if not (_GLOB.intersection(name) or name in names or name.startswith(beginnings))
    )
    return list(islice(found, MAX_PROBLEMS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """An existing profile.

    Attributes:
        name: Its name.
        level: Where it is from; `file` means a file outside the searched folders.
        file: Its file.
        used: Whether its name refers to this profile, and no other profile overrides it.
        trusted: Whether it is trusted; only a project's profile can be untrusted.
        profile: The profile, even if it is not trusted; None if it cannot be read.
        problems: Why it cannot be read.
    """

    name: str
    level: LevelName | Literal["file"]
    file: Path
    used: bool
    trusted: bool
    profile: Profile | None = field(default=None, repr=False)
    problems: tuple[UsageError, ...] = ()

    def unknown_tools(self, known: Iterable[str], prefixes: Iterable[str] = ()) -> Sequence[ProfileInvalid]:
        """The errors for all unknown tools; `check_tools` raises only the first."""
        return () if self.profile is None else unknown_tools(self.profile, known, prefixes)


class Profiles:
    """Profiles by name. Each file is read once, on first use.

    Args:
        levels: The sources of profiles. A later one overrides an earlier one.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = tuple(levels)

    @classmethod
    def open(cls, user: Path | None = None, project: Path | None = None, trust: Path | None = None) -> Self:
        """Open all sources of profiles.

        Args:
            user: The user's folder of profiles; None is `profiles` in the user's configuration folder.
            project: A project; the profiles in its folder `.worldagent/profiles` are used if it is trusted.
            trust: The file of trusted projects; None is `trusted.json` in the user's configuration folder.
        """
        levels = [
            Level("built-in", lambda: read_folder(BUILTIN_FOLDER)),
            Level("user", lambda: read_folder(user.expanduser() if user is not None else user_folder() / "profiles")),
        ]
        if project is not None:
            trusted = ProjectTrust(trust)
            levels.append(
                Level("project", lambda: project_folder(project), lambda folder: trust_error(trusted, project, folder))
            )
        return cls(levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all profiles, including those that cannot be used."""
        return tuple(sorted({file.name for level in self._levels for file in level.all()} | {GENERAL}))

    def _instead_of(self, name: str) -> str:
        """The remedy for a name that no profile has: the file of this name or a similar name, and those there are."""
        meant = near(name, set(self.names) - {name})
        files = (file for level in reversed(self._levels) for file in level.all())
        if (file := next((each for each in files if each.path.stem == name != each.name), None)) is not None:
            meant = f"{str(file.path)!r} calls itself {file.name!r}: use this name, or change its `name`; "
        own = (level.folder.path for level in self._levels if level.name == "user")
        where = "".join(f"; add your own as NAME.yaml in the folder {str(path)!r}" for path in own)
        return f"{meant}the profiles are: {', '.join(self.names)}{where}"

    def __contains__(self, name: object) -> bool:
        return name == GENERAL or (isinstance(name, str) and any(level.named(name) for level in self._levels))

    @property
    def unreadable(self) -> tuple[ProfileInvalid, ...]:
        """The errors of folders that exist and cannot be read."""
        return tuple(level.folder.problem for level in self._levels if level.folder.problem is not None)

    @property
    def project_folder(self) -> ProfileFolder | None:
        """The project's profiles as they were read; None without a project."""
        return next((level.folder for level in self._levels if level.name == "project"), None)

    def get(self, name: str) -> Profile:
        """The profile with this name.

        Raises:
            ProfileInvalid: It does not exist, or its file or the profile that it extends is invalid; the text says
                where.
            ProfileUntrusted: It belongs to a project that is not trusted, or that has changed since it was trusted.
            MissingExtra: The extra `yaml` is not installed. `general` does not need it unless a profile overrides it.
        """
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a profile's name must be a string, got {type(name).__name__}", remedy="pass the name as text"
            )
        above = [self._levels[depth] for depth in self._depths(name, len(self._levels))][:-1]
        if name == GENERAL and not any(level.named(name) for level in above):
            return GENERAL_PROFILE
        found = self._find(name, len(self._levels), trusting=False)
        if found is None:
            raise ProfileInvalid(
                f"there is no profile {name[:MAX_SHOWN_CHARACTERS]!r}",
                remedy="a name is not a path; load a file with Profiles.open().load(path), or with --profile"
                if os.path.basename(name) != name or name.endswith((".yaml", ".yml"))
                else self._instead_of(name),
            )
        return effective(self._chain(*found, trusting=False))

    def replacement(self, name: str) -> Path | None:
        """The file of the user or the project that replaces the built-in profile of this name; None if none does.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        depth = self._top(name)
        if depth is None or self._levels[depth].name == "built-in":
            return None
        shipped = any(level.name == "built-in" and level.named(name) for level in self._levels)
        return self._levels[depth].named(name)[0].path if shipped else None

    def load(self, file: Path) -> Profile:
        """Load the profile in any file. It can extend the profiles of this catalogue.

        Raises:
            ProfileInvalid: It or the profile that it extends is invalid; the text says where.
            ProfileUntrusted: It or the profile that it extends belongs to a project that is not trusted.
            MissingExtra: The extra `yaml` is not installed.
        """
        depth, found = self._locate(file)
        if depth < len(self._levels) and (refused := self._levels[depth].refused) is not None:
            raise refused
        return effective(self._chain(depth, found, trusting=False))

    def entry(self, file: Path) -> ProfileEntry:
        """The entry for any file, with all its problems; `load` raises only the first.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return self._entry(*self._locate(file))

    def entries(self) -> tuple[ProfileEntry, ...]:
        """Every profile by name, including overridden profiles and those that cannot be used.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return self._entries

    def problems(self) -> tuple[UsageError, ...]:
        """All problems in files and folders. That a project is not trusted does not count as one.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return (*self.unreadable, *(problem for entry in self._entries for problem in entry.problems))

    def check(self) -> None:
        """Raise one error for all problems in files and folders.

        Raises:
            ProfileInvalid: There is a problem; the text lists all of them.
            MissingExtra: The extra `yaml` is not installed.
        """
        problems = self.problems()
        if len(problems) > 1:
            raise ProfileInvalid(
                f"{len(problems)} problems were found: {'; '.join(each.problem for each in problems)}",
                remedy="; ".join(dict.fromkeys(each.remedy for each in problems)),
            )
        for problem in problems:
            raise problem

    @cached_property
    def _entries(self) -> tuple[ProfileEntry, ...]:
        found: dict[tuple[str, int], ProfileEntry] = {}
        for depth, level in enumerate(self._levels):
            for file in level.all():
                if (file.name, depth) not in found:
                    found[file.name, depth] = self._entry(depth, file)
        return tuple(entry for _, entry in sorted(found.items()))

    def _entry(self, depth: int, file: ProfileFile) -> ProfileEntry:
        level = self._levels[depth] if depth < len(self._levels) else None
        profile, problems = None, list(self._own_problems(level, file))
        try:
            chain = self._extended(depth, file, trusting=True)
        except UsageError as error:
            problems.append(error)
        else:
            profile = None if problems else effective(chain)
        return ProfileEntry(
            name=file.name,
            level="file" if level is None else level.name,
            file=file.path,
            used=level is not None and self._top(file.name) == depth,
            trusted=level is None or level.refused is None,
            profile=profile,
            problems=tuple(problems),
        )

    def _own_problems(self, level: Level | None, file: ProfileFile) -> Iterator[UsageError]:
        if level is not None and level.name == "project" and file.name == GENERAL:
            yield ProfileInvalid(
                f"{file.where}: a project must not define the profile {GENERAL!r}", remedy="give it another name"
            )
        named = [file] if level is None else level.named(file.name)
        if len(named) > 1:
            yield _duplicate_name(named)
        for each in named:
            yield from each.problems

    def _top(self, name: str) -> int | None:
        """The level whose profile the name refers to."""
        return next((depth for depth in self._depths(name, len(self._levels)) if self._levels[depth].named(name)), None)

    def _depths(self, name: str, below: int) -> Iterator[int]:
        for depth in reversed(range(min(below, len(self._levels)))):
            if name != GENERAL or self._levels[depth].name != "project":  # a project must not define it (P3)
                yield depth

    def _find(self, name: str, below: int, *, trusting: bool) -> tuple[int, ProfileFile] | None:
        """The file of the profile with a name, from the levels below a given one."""
        for depth in self._depths(name, below):
            level = self._levels[depth]
            if level.folder.problem is not None and name != GENERAL:
                raise level.folder.problem
            files = level.named(name)
            if files and not trusting and level.refused is not None:
                raise level.refused
            if len(files) > 1:
                raise _duplicate_name(files)
            if files:
                return depth, files[0]
        return None

    def _locate(self, path: Path) -> tuple[int, ProfileFile]:
        """A file and its level. A file of no level ranks above all levels."""
        for depth, level in enumerate(self._levels):
            found = level.at(path)
            if found is not None:
                return depth, found
        return len(self._levels), parsed(path, read_one(path))

    def _chain(self, depth: int, file: ProfileFile, *, trusting: bool) -> list[ProfileFile]:
        """A file, the file that it extends, and so on; raises the first problem of any of them."""
        for problem in file.problems:
            raise problem
        return self._extended(depth, file, trusting=trusting)

    def _extended(self, depth: int, file: ProfileFile, *, trusting: bool) -> list[ProfileFile]:
        """A file, the file that it extends, and so on. It can extend only its own level and those below."""
        chain = [file]
        while file.extends is not None:
            depth, file = self._parent(depth, file, trusting=trusting)
            if any(each.path == file.path for each in chain):
                described = " -> ".join(f"{each.name!r} ({each.extends_at})" for each in [*chain, file])
                raise ProfileInvalid(
                    f"{chain[0].extends_at}: the profile {chain[0].name!r} extends others in a circle: {described}",
                    remedy="remove one 'extends'",
                )
            chain.append(file)
        return chain

    def _parent(self, depth: int, file: ProfileFile, *, trusting: bool) -> tuple[int, ProfileFile]:
        name = str(file.extends)
        problem: UsageError | None = None
        try:
            found = self._find(name, depth if name == file.name else depth + 1, trusting=trusting)
        except UsageError as error:
            problem, found = error, None
        if found is not None and found[1].problems:
            problem = found[1].problems[0]
        if problem is not None:
            described = f"{file.extends_at}: it extends {name!r}, which cannot be used: {problem.problem}"
            raise type(problem)(described, remedy=problem.remedy)
        if found is None:
            which = "no other profile of this name below it" if name == file.name else f"no profile {name!r} for it"
            raise ProfileInvalid(
                f"{file.extends_at}: {file.name!r} extends {name!r}, but there is {which}",
                remedy=self._instead_of(name),
            )
        return found


def _duplicate_name(files: Sequence[ProfileFile]) -> ProfileInvalid:
    described = " and ".join(file.where or str(file.path) for file in files)
    return ProfileInvalid(f"{described} are both called {files[0].name!r}", remedy="rename or remove one of them")
