"""All profiles by name: built-in, the user's, a project's, the later over the earlier. Who runs one: `agent`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

from ..core.errors import InvalidArgument, ProfileInvalid, UsageError
from .file import ProfileFile, effective
from .folder import read_folder, read_one
from .general import BUILTIN_FOLDER, GENERAL_PROFILE
from .level import Level, LevelName, parsed
from .near import near
from .profile import GENERAL, Profile
from .tools import unknown_tools
from .trust import ProjectTrust, distrust, project_folder

_SHOWN: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """A profile that there is.

    Attributes:
        name: What it is called.
        level: Where it is from; `file` is none of the places that are searched.
        file: Its file.
        used: Whether its name means this one: no other goes over it.
        trusted: Whether it may be used, as far as trust goes.
        profile: What it says, also where it is not trusted; None where it cannot be read.
        problems: Why it cannot be.
    """

    name: str
    level: LevelName | Literal["file"]
    file: Path
    used: bool
    trusted: bool
    profile: Profile | None = field(default=None, repr=False)
    problems: tuple[UsageError, ...] = ()

    def unknown_tools(self, known: Iterable[str], prefixes: Iterable[str] = ()) -> Sequence[ProfileInvalid]:
        """All that `check_tools` would refuse, of which it tells the first."""
        return () if self.profile is None else unknown_tools(self.profile, known, prefixes)


class Profiles:
    """Profiles by name. Files are read once, when they are first asked for.

    Args:
        levels: Where they come from, the later over the earlier.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = tuple(levels)

    @classmethod
    def open(cls, user: Path | None = None, project: Path | None = None, trust: Path | None = None) -> Self:
        """All profiles that there are.

        Args:
            user: The user's folder of profiles; None is `profiles` in the user's configuration folder.
            project: A project, whose folder `.worldagent/profiles` counts where it is trusted; None is none.
            trust: The file of trusted projects; None is `trusted.json` in the user's configuration folder.
        """
        levels = [
            Level("built-in", lambda: read_folder(BUILTIN_FOLDER)),
            Level("user", lambda: read_folder(user.expanduser() if user is not None else _user_folder())),
        ]
        if project is not None:
            trusted = ProjectTrust(trust)
            levels.append(
                Level("project", lambda: project_folder(project), lambda folder: distrust(trusted, project, folder))
            )
        return cls(levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all profiles, also of those that cannot be used."""
        return tuple(sorted({file.name for level in self._levels for file in level.all()} | {GENERAL}))

    @property
    def _yours(self) -> str:
        """What a remedy ends with: where a file goes."""
        own = (level.folder.path for level in self._levels if level.name == "user")
        return "".join(f"; yours are the files NAME.yaml in the folder {str(path)!r}" for path in own)

    def __contains__(self, name: object) -> bool:
        return name == GENERAL or (isinstance(name, str) and any(level.named(name) for level in self._levels))

    @property
    def unreadable(self) -> tuple[ProfileInvalid, ...]:
        """Why folders cannot be read, of those that are there."""
        return tuple(level.folder.problem for level in self._levels if level.folder.problem is not None)

    @property
    def project_digest(self) -> str | None:
        """Stands for what has been read of the project, for `ProjectTrust.trust`; None without a project."""
        return next((level.folder.digest for level in self._levels if level.name == "project"), None)

    def get(self, name: str) -> Profile:
        """The profile of this name.

        Raises:
            ProfileInvalid: There is none, its file cannot be used, or what it extends; the text says where.
            ProfileUntrusted: It is a project's, and the project is not trusted, or has changed since.
            MissingExtra: The extra `yaml` is not installed. `general` needs none where nobody overrides it.
        """
        if not isinstance(name, str):
            raise InvalidArgument(f"a profile's name is no {type(name).__name__}", remedy="give a text")
        above = [self._levels[depth] for depth in self._depths(name, len(self._levels))][:-1]
        if name == GENERAL and not any(level.named(name) for level in above):
            return GENERAL_PROFILE
        found = self._find(name, len(self._levels), trusting=False)
        if found is None:
            raise ProfileInvalid(
                f"there is no profile {name[:_SHOWN]!r}",
                remedy=f"{near(name, self.names)}the profiles are: {', '.join(self.names)}{self._yours}",
            )
        return effective(self._chain(*found, trusting=False))

    def load(self, file: Path) -> Profile:
        """The profile of a file, wherever it is. What it extends is one of these.

        Raises:
            ProfileInvalid: It cannot be used, or what it extends; the text says where.
            ProfileUntrusted: It, or what it extends, is one of a project that is not trusted.
            MissingExtra: The extra `yaml` is not installed.
        """
        depth, found = self._locate(file)
        if depth < len(self._levels) and (refused := self._levels[depth].refused) is not None:
            raise refused
        return effective(self._chain(depth, found, trusting=False))

    def entry(self, file: Path) -> ProfileEntry:
        """What `load` would say of a file, with all that is wrong.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return self._entry(*self._locate(file))

    def entries(self) -> tuple[ProfileEntry, ...]:
        """Every profile there is by name, also what another one goes over, and what cannot be used.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return self._entries

    def problems(self) -> tuple[UsageError, ...]:
        """All that is wrong in files and folders; whether a project is trusted is none of it.

        Raises:
            MissingExtra: The extra `yaml` is not installed.
        """
        return (*self.unreadable, *(problem for entry in self._entries for problem in entry.problems))

    def check(self) -> None:
        """Refuse all that is wrong in files and folders at once.

        Raises:
            ProfileInvalid: There is something; the text says all of it.
            MissingExtra: The extra `yaml` is not installed.
        """
        problems = self.problems()
        if len(problems) > 1:
            raise ProfileInvalid(
                f"{len(problems)} things are wrong: {'; '.join(each.problem for each in problems)}",
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
                f"{file.where}: a project may not define the profile {GENERAL!r}", remedy="call it something else"
            )
        named = [file] if level is None else level.named(file.name)
        if len(named) > 1:
            yield _twice(named)
        for each in named:
            yield from each.problems

    def _top(self, name: str) -> int | None:
        """The level that a name is taken from."""
        return next((depth for depth in self._depths(name, len(self._levels)) if self._levels[depth].named(name)), None)

    def _depths(self, name: str, below: int) -> Iterator[int]:
        for depth in reversed(range(min(below, len(self._levels)))):
            if name != GENERAL or self._levels[depth].name != "project":  # no project may define it (P3)
                yield depth

    def _find(self, name: str, below: int, *, trusting: bool) -> tuple[int, ProfileFile] | None:
        """The file of a name, from the levels below one."""
        for depth in self._depths(name, below):
            level = self._levels[depth]
            if level.folder.problem is not None and name != GENERAL:
                raise level.folder.problem
            files = level.named(name)
            if files and not trusting and level.refused is not None:
                raise level.refused
            if len(files) > 1:
                raise _twice(files)
            if files:
                return depth, files[0]
        return None

    def _locate(self, path: Path) -> tuple[int, ProfileFile]:
        """A file, and the level it is of, or would be over all others."""
        for depth, level in enumerate(self._levels):
            found = level.at(path)
            if found is not None:
                return depth, found
        return len(self._levels), parsed(path, read_one(path))

    def _chain(self, depth: int, file: ProfileFile, *, trusting: bool) -> list[ProfileFile]:
        """A file, what it extends, and so on, if nothing is wrong with any of them."""
        for problem in file.problems:
            raise problem
        return self._extended(depth, file, trusting=trusting)

    def _extended(self, depth: int, file: ProfileFile, *, trusting: bool) -> list[ProfileFile]:
        """A file, what it extends, and so on. It sees its own level and those below: it means the same everywhere."""
        chain = [file]
        while file.extends is not None:
            depth, file = self._parent(depth, file, trusting=trusting)
            if any(each.path == file.path for each in chain):
                told = " -> ".join(f"{each.name!r} ({each.extends_at})" for each in [*chain, file])
                raise ProfileInvalid(
                    f"{chain[0].extends_at}: the profile {chain[0].name!r} extends others in a circle: {told}",
                    remedy="take one 'extends' away",
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
            told = f"{file.extends_at}: it extends {name!r}, which cannot be used: {problem.problem}"
            raise type(problem)(told, remedy=problem.remedy)
        if found is None:
            which = "no other profile of this name below it" if name == file.name else f"no profile {name!r} for it"
            raise ProfileInvalid(
                f"{file.extends_at}: {file.name!r} extends {name!r}, and there is {which}",
                remedy=f"{near(name, set(self.names) - {name})}the profiles are: {', '.join(self.names)}{self._yours}",
            )
        return found


def _twice(files: Sequence[ProfileFile]) -> ProfileInvalid:
    told = " and ".join(file.where or str(file.path) for file in files)
    return ProfileInvalid(f"{told} are both called {files[0].name!r}", remedy="rename one of them, or take it away")


def _user_folder() -> Path:
    import platformdirs

    return platformdirs.user_config_path("worldagent", appauthor=False) / "profiles"


__all__ = ["ProfileEntry", "Profiles"]
