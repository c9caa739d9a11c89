"""Reads a skill package: a folder with a SKILL.md, as in the public Agent Skills format (T6).

https://agentskills.io/specification has the rules. Packages are written for many programs, so one that breaks a rule is
used where its meaning is clear, and a warning names the file and the line. A package whose name, description or tools
cannot be told has no effect.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from ..core.errors import SkillInvalid
from ..harness.trust import check_tree, read_tree_file, tree_digest, tree_files
from ..harness.yaml import YamlDocument, near, read_yaml

Starter = Literal["people", "models"]

MAX_NAME: Final = 64  # characters
MAX_DESCRIPTION: Final = 1024  # characters
MAX_COMPATIBILITY: Final = 500  # characters
MAX_SKILL_BYTES: Final = 1 << 20  # bytes in SKILL.md
MAX_FRONT_BYTES: Final = 1 << 16  # bytes before its instructions

SKILL_FILE: Final = "SKILL.md"
_FILE_NAMES: Final = (SKILL_FILE, "skill.md")
_KEYS: Final = (
    *("name", "description", "license", "compatibility", "metadata", "allowed-tools"),
    *("disallowed-tools", "argument-hint", "disable-model-invocation", "user-invocable"),  # of Claude Code
)
_NAME: Final = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_FENCE: Final = "---"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillHeader:
    """What SKILL.md says of a skill before its instructions. This is all that is read to list it.

    Attributes:
        name: Its name.
        description: What it does, and when to use it.
        license: Its license, or where it is.
        compatibility: What it needs, such as a program or the network.
        metadata: Further entries for programs that know them.
        allowed_tools: The tools that it uses, as the package writes them.
        disallowed_tools: Tools that it does not use.
        argument_hint: What to write in a request, for people.
        started_by: Who can start it: people unless it has `user-invocable: false`, models unless it has
            `disable-model-invocation: true`.
        file: Its SKILL.md.
        warnings: What is not used as it is written.
    """

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    argument_hint: str | None = None
    started_by: tuple[Starter, ...] = ("people", "models")
    file: Path
    warnings: tuple[SkillInvalid, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPackage:
    """A skill with its instructions, ready to run.

    Attributes:
        header: Its name, description and the rest of its front matter.
        instructions: The text of SKILL.md after the front matter.
        files: Its other files, relative to its folder, with `/` between the parts.
        scripts: Whether its scripts can run.
        version: A digest of the names, contents and executable marks of all its files.
    """

    header: SkillHeader
    instructions: str = field(repr=False)
    files: tuple[str, ...] = ()
    scripts: bool = True
    version: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.header.name

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.header.file.parent

    def read(self, path: str) -> bytes:
        """The content of one of its files.

        Args:
            path: The file, relative to the folder of the package, such as `references/style.md`.

        Raises:
            SkillInvalid: It is not a file of the package, or cannot be read.
        """
        wanted = str(PurePosixPath(path))
        if wanted not in self.files:
            raise SkillInvalid(
                f"the skill {self.name!r} has no file {path[:200]!r}",
                remedy=f"its files are: {', '.join(self.files[:20]) or 'none'}",
            )
        return read_tree_file(self.folder / wanted)


def judge_header(folder: Path) -> tuple[SkillHeader | None, tuple[SkillInvalid, ...]]:
    """Read the front matter of a package, and nothing else.

    Args:
        folder: The folder of the package.

    Returns:
        The front matter, or None and why it cannot be used.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    try:
        header, problems, _ = _read(folder)
    except SkillInvalid as problem:
        return None, (problem,)
    return (None, tuple(problems)) if problems else (header, ())


def read_package(folder: Path, *, scripts: bool = True) -> SkillPackage:
    """Read a package and compute its version.

    Args:
        folder: The folder of the package.
        scripts: Whether its scripts can run.

    Raises:
        SkillInvalid: The package breaks a rule of the format, or a file of it cannot be read.
        MissingExtra: The extra `yaml` is not installed.
    """
    header, problems, instructions = _read(folder)
    for problem in problems:
        raise problem
    files = tree_files(folder)
    return SkillPackage(
        header=header,
        instructions=instructions,
        files=tuple(path for path in files if path != header.file.name),
        scripts=scripts,
        version=tree_digest(files),
    )


def judge_package(folder: Path) -> tuple[SkillHeader | None, tuple[SkillInvalid, ...]]:
    """Read the front matter of a package, and look whether its files can be read, without reading them.

    Args:
        folder: The folder of the package.

    Returns:
        The front matter and no problem, or None and what keeps the package from being used.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    header, problems = judge_header(folder)
    try:
        check_tree(folder)
    except SkillInvalid as problem:
        return None, (*problems, problem)
    return header, problems


def skill_file(folder: Path) -> Path | None:
    """The SKILL.md of a package, or None if the folder has none."""
    return next((folder / name for name in _FILE_NAMES if os.path.lexists(folder / name)), None)


# --- SKILL.md ---------------------------------------------------------------------------------------------------------


def _read(folder: Path) -> tuple[SkillHeader, list[SkillInvalid], str]:
    """The front matter, all problems in it, and the instructions.

    Raises:
        SkillInvalid: There is no front matter that could be judged.
    """
    file = skill_file(folder)
    if file is None:
        raise SkillInvalid(
            f"{str(folder)!r} has no {SKILL_FILE}", remedy="add it, or name the folder of a skill package"
        )
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise SkillInvalid(f"{file} is a link that leads out of the package", remedy="replace it with the file itself")
    lines = _text(file).splitlines(keepends=True)
    if not lines or lines[0].rstrip() != _FENCE:
        raise SkillInvalid(f"{file}:1 has no front matter", remedy=f"begin the file with a line {_FENCE}")
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise SkillInvalid(f"{file}:1: the front matter does not end", remedy=f"end it with a line {_FENCE}")
    front = "".join(lines[1:end]).encode()
    if len(front) > MAX_FRONT_BYTES:  # a megabyte takes a minute, and a package can come from an MCP server
        raise SkillInvalid(
            f"{file}:1: the front matter has {len(front)} bytes", remedy=f"keep it to {MAX_FRONT_BYTES} bytes"
        )
    document = read_yaml(front, name=str(file), error=SkillInvalid, first_line=2, texts=True, colons=True)
    if not isinstance(document.data, dict):
        raise document.invalid("the front matter must be a mapping", "write `name: NAME` and `description: TEXT`")
    header = _Header(document, document.data, folder)
    return header.made(file), header.problems, "".join(lines[end + 1 :]).strip()


def _text(file: Path) -> str:
    content = read_tree_file(file, MAX_SKILL_BYTES)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
    raise SkillInvalid(f"{file}:{line} is not UTF-8", remedy="save the file as UTF-8")


class _Header:
    """The front matter of one SKILL.md, judged by the rules of the format.

    Attributes:
        problems: Why the package cannot be used.
    """

    def __init__(self, document: YamlDocument[SkillInvalid], data: Mapping[str, Any], folder: Path) -> None:
        self._document, self._folder = document, folder
        self.problems: list[SkillInvalid] = []
        self._warnings: list[SkillInvalid] = []
        self._keys: dict[str, str] = {}  # as they are written
        for key in data:
            known = key.lower().replace("_", "-")
            if known not in _KEYS:
                remedy = f"{near(key, _KEYS)}the keys are: {', '.join(_KEYS)}"
                self._warn(f"the key {key[:80]!r} has no effect here", remedy, key)
            else:
                self._keys[known] = key
        self._data = {known: data[key] for known, key in self._keys.items()}

    def made(self, file: Path) -> SkillHeader:
        return SkillHeader(
            name=self._name(),
            description=self._description(),
            license=self._text("license"),
            compatibility=self._text("compatibility", MAX_COMPATIBILITY),
            metadata=self._metadata(),
            allowed_tools=self._tools("allowed-tools"),
            disallowed_tools=self._tools("disallowed-tools"),
            argument_hint=self._hint(),
            started_by=self._started_by(),
            file=file,
            warnings=tuple(self._warnings),
        )

    def _refuse(self, problem: str, remedy: str, key: str) -> None:
        self.problems.append(self._document.invalid(problem, remedy, self._keys.get(key, key)))

    def _warn(self, problem: str, remedy: str, key: str) -> None:
        self._warnings.append(self._document.invalid(problem, remedy, self._keys.get(key, key)))

    def _name(self) -> str:
        """The name that is written, or that of the folder if there is none that could be used."""
        value = self._data.get("name")
        name = unicodedata.normalize("NFKC", value.strip()) if isinstance(value, str) else ""
        called = unicodedata.normalize("NFKC", Path(os.path.abspath(self._folder)).name)
        if _is_name(name):
            if name != called:
                self._warn(f"the name {name!r} is not that of its folder {called[:80]!r}", "make them equal", "name")
            return name
        problem = f"the name {name[:80]!r} is not valid" if name else "the front matter has no text `name`"
        remedy = f"write 1 to {MAX_NAME} lower-case letters and digits, with single '-' between them"
        if _is_name(called):
            self._warn(f"{problem}, so the skill has the name of its folder: {called!r}", remedy, "name")
        else:
            self._refuse(problem, remedy, "name")
        return called

    def _description(self) -> str:
        value = self._data.get("description")
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            self._refuse("the front matter needs a text `description`", "write `description: TEXT`", "description")
        return self._shortened(text, "description", MAX_DESCRIPTION)

    def _text(self, key: str, most: int | None = None) -> str | None:
        value = self._data.get(key)
        if value is None or isinstance(value, str):
            return None if value is None else self._shortened(value.strip(), key, most)
        self._warn(f"`{key}` is not a text and has no effect", f"write `{key}: TEXT`", key)
        return None

    def _shortened(self, text: str, key: str, most: int | None) -> str:
        if most is None or len(text) <= most:
            return text
        self._warn(f"`{key}` has {len(text)} characters, of which {most} are used", f"keep it to {most}", key)
        return text[:most]

    def _metadata(self) -> Mapping[str, str]:
        value = self._data.get("metadata") or {}
        if isinstance(value, dict):
            return {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
        self._warn("`metadata` is not a mapping and has no effect", "write `KEY: TEXT` below it", "metadata")
        return {}

    def _hint(self) -> str | None:
        value = self._data.get("argument-hint")
        if isinstance(value, list):  # `[file]`, which YAML takes for a list
            return " ".join(f"[{each}]" for each in value)
        return self._text("argument-hint")

    def _started_by(self) -> tuple[Starter, ...]:
        people: tuple[Starter, ...] = ("people",) if self._flag("user-invocable", default=True) else ()
        return people if self._flag("disable-model-invocation", default=False) else (*people, "models")

    def _flag(self, key: str, *, default: bool) -> bool:
        """A value that says who can start the skill; one that is unclear is refused, because it may be a limit."""
        value = self._data.get(key)
        if value is None or value == "":
            return default
        flag = _FLAGS.get(value.lower()) if isinstance(value, str) else None
        if flag is None:
            self._refuse(f"`{key}` is neither true nor false", f"write `{key}: {str(not default).lower()}`", key)
        return bool(flag)

    def _tools(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key)
        entries = [value] if isinstance(value, str) else value
        if entries is None:
            return ()
        if not isinstance(entries, list) or not all(isinstance(each, str) for each in entries):
            self._refuse(f"`{key}` is neither a text nor a list of texts", f"write `{key}: TOOL TOOL`", key)
            return ()
        return tuple(tool for each in entries for tool in split_tools(each))


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME and text == text.lower() and _NAME.fullmatch(text) is not None


def split_tools(text: str) -> Iterator[str]:
    """The entries of `allowed-tools`, which are separated by spaces or commas. An entry's parentheses can have both.

    Args:
        text: The value, such as `Read Bash(git add:*)`.
    """
    depth, entry = 0, ""
    for mark in text:
        depth += (mark == "(") - (mark == ")")
        if depth <= 0 and (mark.isspace() or mark == ","):
            if entry:
                yield entry
            depth, entry = 0, ""
        else:
            entry += mark
    if entry:
        yield entry
