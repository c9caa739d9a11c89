"""What an embedder lets the built-in tools access, and how they are made by name. Their code is in the subfolders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import inf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import InvalidArgument, MissingExtra
from ..core.validation import is_text
from ..harness import Function, Worker
from ..harness.gate import is_like

if TYPE_CHECKING:
    from .web import WebSearch

BUILTIN: Final = (
    "read_file",
    "write_file",
    "edit_file",
    "glob_files",
    "grep_content",
    "shell",
    "web_search",
    "web_fetch",
    "manage_todo_list",
    "explore",
    "parallel_execution",
)
"""The names of the built-in tools."""


TIMEOUTS: Final[Mapping[str, float]] = {"shell": 60.0, "web_search": 30.0, "web_fetch": 30.0}
"""Seconds that a call can take, for the tools that have such a limit."""

OUTPUT_LIMITS: Final[Mapping[str, int]] = {
    "read_file": 30_000,
    "glob_files": 30_000,
    "grep_content": 30_000,
    "shell": 30_000,
    "web_fetch": 50_000,
}
"""Characters of a result, for the tools that have such a limit."""

LEAST_OUTPUT: Final = 1_000
"""The lowest limit of a result in characters; a note about omitted text must fit in."""

_FILES: Final = ("read_file", "write_file", "edit_file", "glob_files", "grep_content")
EXPLORE: Final = "explore"
EXPLORED_WITH: Final = ("read_file", "glob_files", "grep_content", "web_search", "web_fetch")
"""The tools of the worker `explore`."""
_COMPANIONS: Final = ("manage_todo_list", "explore", "parallel_execution")  # useful only with tools that access files


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTools:
    """What the built-in tools can access, whatever a profile says; a profile can only narrow it.

    Attributes:
        roots: Folders that the file tools stay inside, and that `shell` runs in; by default none.
        search: What `web_search` searches; see `WebSearch` and `LocalIndex`.
        shell: Whether `shell` is available, in the first of `roots`, if the profile names no tools.
        web: Whether `web_fetch` is available if the profile names no tools.
        allow: Globs over the names of the tools that profiles can use.
        allow_private: Whether `web_fetch` can reach this machine and its network.
        timeouts: Seconds that a call can take, by tool; see `TIMEOUTS`.
        output_limits: Characters of a result, by tool; see `OUTPUT_LIMITS`.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
    """

    roots: tuple[Path, ...] = ()
    search: WebSearch | None = None
    shell: bool = False
    web: bool = False
    allow: tuple[str, ...] = ("*",)
    allow_private: bool = False
    timeouts: Mapping[str, float] = field(default_factory=dict)
    output_limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roots = self.roots
        if isinstance(roots, str | bytes | PathLike) or not all(isinstance(each, str | PathLike) for each in roots):
            raise InvalidArgument("`roots` must be a list of folders", remedy="pass one, as roots=[Path('project')]")
        object.__setattr__(self, "roots", tuple(map(Path, roots)))
        allow = (self.allow,) if isinstance(self.allow, str) else tuple(self.allow)
        if not all(map(is_text, allow)):
            raise InvalidArgument("`allow` must be a list of globs", remedy="pass one, as allow=['read_file', 'web_*']")
        object.__setattr__(self, "allow", allow)
        for name, given, known in (
            ("timeouts", self.timeouts, TIMEOUTS),
            ("output_limits", self.output_limits, OUTPUT_LIMITS),
        ):
            self._check(name, given, known)
            object.__setattr__(self, name, {**known, **given})

    @property
    def usable(self) -> tuple[str, ...]:
        """The tools of a profile that names none: those that have something to work on."""
        left_out = {
            "grep_content": find_spec("re2") is None,  # an extra; a profile that names the tool without it is an error
            "shell": not self.shell,
            "web_fetch": not self.web,
            **dict.fromkeys(_COMPANIONS, not self.roots),
        }
        found = [name for name in BUILTIN if self.works(name) and self.allows(name) and not left_out.get(name)]
        if not any(name in EXPLORED_WITH for name in found):
            found = [name for name in found if name != EXPLORE]
        return tuple(found)

    def works(self, name: str) -> bool:
        """Whether the tool has what it works on; without that it could only refuse."""
        if name == "web_search":
            return self.search is not None
        return bool(self.roots) or name not in (*_FILES, "shell")

    def allows(self, name: str) -> bool:
        """Whether profiles can use this tool."""
        return is_like(name, self.allow)

    def named(
        self, names: Iterable[str], settings: Mapping[str, Mapping[str, Any]] | None = None, *, home: Path | None = None
    ) -> tuple[Function | Worker, ...]:
        """Make the built-in tools that are named and allowed.

        A tool that has nothing to work on says so when it is called, and is not offered to the conversation.

        Args:
            names: The names; those of other tools are ignored.
            settings: `timeout` and `output_limit` of single tools, each at most the limit set here.
            home: The agent's home. The file tools do not see it, and `shell` does not start in it.

        Raises:
            InvalidArgument: A root is in the home.
            MissingExtra: A tool needs an extra that is not installed.
        """
        given = settings or {}
        return tuple(
            self._offered(self._made(name, given.get(name, {}), home))
            for name in dict.fromkeys(names)
            if name in BUILTIN and self.allows(name)
        )

    def _offered(self, made: Function | Worker) -> Function | Worker:
        return replace(made, offered=False) if isinstance(made, Function) and not self.works(made.name) else made

    def _made(self, name: str, settings: Mapping[str, Any], home: Path | None) -> Function | Worker:
        timeout = min(self.timeouts.get(name, 0.0), settings.get("timeout", float("inf")))
        limit = min(self.output_limits.get(name, 0), settings.get("output_limit", 1 << 40))
        if name == "grep_content" and find_spec("re2") is None:
            raise MissingExtra(
                "'grep_content' searches with the package 'google-re2', which is not installed",
                remedy="install it: pip install 'worldagent[tools]'",
            )
        if name in _FILES:
            from .files import Roots, file_functions

            made = file_functions(Roots(self.roots, hidden=home), limit=limit or 30_000)
            return self._placed(next(each for each in made if each.name == name))
        match name:
            case "shell":
                from .files import Roots
                from .shell import shell_function

                return self._placed(shell_function(Roots(self.roots, hidden=home), timeout=timeout, limit=limit))
            case "web_search":
                from .web import web_search_function

                return web_search_function(self.search, timeout=timeout)
            case "web_fetch":
                from .web import web_fetch_function

                return web_fetch_function(allow_private=self.allow_private, timeout=timeout, limit=limit)
            case "manage_todo_list":
                from .agents import manage_todo_list

                return manage_todo_list
            case _:
                from .agents import EXPLORER, PARALLEL

                return EXPLORER if name == EXPLORE else PARALLEL

    def _placed(self, made: Function) -> Function:
        """Bind a tool to the folders, so that an approval in one folder does not apply in another."""
        folders = [str(root.absolute()) for root in self.roots]
        shown_folder = (
            json.dumps(folders[0]) if folders else "none"
        )  # as JSON, since a stranger may have named the folder
        return replace(
            made,
            description=f"{made.description} Paths are relative to the folder {shown_folder}.",
            variant="\n".join(folders),
        )

    @staticmethod
    def _check(what: str, given: Mapping[str, float], known: Mapping[str, float]) -> None:
        for name, value in given.items():
            if name not in known:
                raise InvalidArgument(
                    f"`{what}` has no entry {str(name)[:80]!r}", remedy=f"use any of {', '.join(sorted(known))}"
                )
            least = LEAST_OUTPUT if what == "output_limits" else 0
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value < inf or value < least or value <= 0:
                must = f"{least:,} or more" if least else "a number above 0"
                raise InvalidArgument(f"`{what}` of {name!r} must be {must}, got {value!r}", remedy=f"pass {must}")
