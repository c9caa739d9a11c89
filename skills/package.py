"""Reads a skill package: a folder with a SKILL.md, as in the public Agent Skills format (T6).

https://agentskills.io/specification has the rules. A package that breaks one has no effect, and each problem names its
file and line.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ..core.errors import SkillInvalid
from ..harness.trust import check_tree, read_tree_file, tree_digest, tree_files
from ..harness.yaml import YamlDocument, read_yaml

MAX_NAME: Final = 64  # characters
MAX_DESCRIPTION: Final = 1024  # characters
MAX_COMPATIBILITY: Final = 500  # characters
MAX_SKILL_BYTES: Final = 1 << 20  # bytes in SKILL.md

SKILL_FILE: Final = "SKILL.md"
_FILE_NAMES: Final = (SKILL_FILE, "skill.md")
_KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_FENCE: Final = "---"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillHeader:
    """What SKILL.md says of a skill before its instructions. This is all that is read to list it.

    Attributes:
        name: Its name, which is also the name of its folder.
        description: What it does, and when to use it.
        license: Its license, or where it is.
        compatibility: What it needs, such as a program or the network.
        metadata: Further entries for programs that know them.
        allowed_tools: The tools that it uses, as the package writes them.
        file: Its SKILL.md.
    """

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    file: Path


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
        The front matter, or None and the rules of the format that it breaks.

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


def skill_problems(folder: Path) -> tuple[SkillInvalid, ...]:
    """Everything that is wrong with a package, including files that cannot be read.

    Args:
        folder: The folder of the package.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    _, problems = judge_header(folder)
    return (*problems, *_tree_problems(folder))


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
    found = (*problems, *_tree_problems(folder))
    return (None, found) if found else (header, ())


def _tree_problems(folder: Path) -> tuple[SkillInvalid, ...]:
    try:
        check_tree(folder)
    except SkillInvalid as problem:
        return (problem,)
    return ()


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
    document = read_yaml(front, name=str(file), error=SkillInvalid, first_line=2, texts=True)
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
        problems: The broken rules.
    """

    def __init__(self, document: YamlDocument[SkillInvalid], data: Mapping[str, Any], folder: Path) -> None:
        self._document, self._data, self._folder = document, data, folder
        self.problems: list[SkillInvalid] = []
        for key in data:
            if key not in _KEYS:
                self._refuse(f"the front matter has no key {key!r}", f"the keys are: {', '.join(_KEYS)}", key)

    def made(self, file: Path) -> SkillHeader:
        name = self._name()
        return SkillHeader(
            name=name,
            description=self._required("description", MAX_DESCRIPTION),
            license=self._optional("license"),
            compatibility=self._optional("compatibility", MAX_COMPATIBILITY),
            metadata=self._metadata(),
            allowed_tools=self._tools(),
            file=file,
        )

    def _refuse(self, problem: str, remedy: str, *path: str) -> None:
        self.problems.append(self._document.invalid(problem, remedy, *path))

    def _name(self) -> str:
        name = unicodedata.normalize("NFKC", self._required("name", MAX_NAME))
        if not name:
            return name
        if name != name.lower() or not all(mark.isalnum() or mark == "-" for mark in name):
            self._refuse(f"the name {name[:MAX_NAME]!r} is not valid", "use lower-case letters, digits and '-'", "name")
        if name.startswith("-") or name.endswith("-") or "--" in name:
            self._refuse(
                f"the name {name[:MAX_NAME]!r} is not valid", "put each '-' between two letters or digits", "name"
            )
        called = unicodedata.normalize("NFKC", Path(os.path.abspath(self._folder)).name)
        if called != name:
            self._refuse(
                f"the name {name[:MAX_NAME]!r} is not that of its folder {called!r}", "make them equal", "name"
            )
        return name

    def _required(self, key: str, most: int) -> str:
        value = self._data.get(key)
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            self._refuse(f"the front matter needs a text `{key}`", f"write `{key}: TEXT`", key)
        elif len(text) > most:
            self._refuse(f"`{key}` has {len(text)} characters", f"keep it to {most}", key)
        return text

    def _optional(self, key: str, most: int | None = None) -> str | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self._refuse(f"`{key}` must be a text", f"write `{key}: TEXT`", key)
            return None
        if most is not None and len(value) > most:
            self._refuse(f"`{key}` has {len(value)} characters", f"keep it to {most}", key)
        return value.strip()

    def _metadata(self) -> Mapping[str, str]:
        value = self._data.get("metadata")
        if value is None or value == "":
            return {}
        if not isinstance(value, dict):
            self._refuse("`metadata` must be a mapping of texts", "write `KEY: TEXT` below it", "metadata")
            return {}
        return {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}

    def _tools(self) -> tuple[str, ...]:
        text = self._optional("allowed-tools")
        return () if text is None else tuple(split_tools(text))


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
