"""Rewrites files of other programs as profiles and skills: CrewAI's agents.yaml and tasks.yaml, and ouro's roles (P1).

An agent and a role become a profile, a task becomes a skill. Nothing of the files is executed. What has no counterpart
here is left out, and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ..core.errors import ProfileInvalid
from ..core.files import read_limited
from ..harness.trust import MAX_PROFILE_BYTES
from ..harness.yaml import YamlDocument, read_yaml, written_yaml
from ..tools import BUILTIN
from .loading import NAME, keys_of, program_of, read_profile

_TOOLS: Final[Mapping[str, str]] = {
    "smart_edit": "edit_file",
    "DirectoryReadTool": "glob_files",
    "FileReadTool": "read_file",
    "FileWriterTool": "write_file",
    "ScrapeWebsiteTool": "web_fetch",
    "SerperDevTool": "web_search",
}
"""Tools of the other programs, and ours."""

_ROLE_KEYS: Final = ("description", "system_prompt", "tools", "agents_md", "memory", "skills", "verification")
"""The keys of a role of ouro that mean the same here."""

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_MAX_DESCRIPTION: Final = 1024  # characters of a skill's description


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A profile or a skill that was made from a file of another program.

    Attributes:
        kind: What it is.
        name: Its name.
        where: The file and line that it was made from.
        files: The contents of a skill's files by their paths in its folder; of a profile only that of its file, `""`.
        notes: What has been left out.
    """

    kind: Literal["profile", "skill"]
    name: str
    where: str
    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


def imported(file: Path, *, prefix: str = "", values: Mapping[str, str] | None = None) -> tuple[Imported, ...]:
    """Make profiles and skills from a file of another program.

    Args:
        file: The file.
        prefix: Put before each name.
        values: What to put in for placeholders such as `{topic}`.

    Raises:
        ProfileInvalid: It cannot be read, or it is not a file of these programs; the text says where.
        MissingExtra: The extra `yaml` is not installed.
    """
    data = read_limited(file, MAX_PROFILE_BYTES)
    if not isinstance(data, bytes):
        raise ProfileInvalid(f"{file} cannot be read: {data}", remedy="pass the path of a readable file")
    document = read_yaml(data, name=str(file), error=ProfileInvalid, colons=True)
    given = document.data if isinstance(document.data, dict) else {}
    if program_of(given) == "CrewAI":
        made = [_Import(document, prefix, values or {}, key, fields).from_crew() for key, fields in given.items()]
    elif {"name", "system_prompt"} & given.keys():
        made = [_Import(document, prefix, values or {}, str(given.get("name") or file.stem), given).from_ouro()]
    else:
        raise document.invalid(
            "it is neither a file of CrewAI's agents or tasks nor a role of ouro",
            "pass agents.yaml, tasks.yaml, or the YAML of a role with `name` and `system_prompt`",
        )
    return tuple(made)


class _Import:
    """One agent, task or role.

    Args:
        document: The file.
        prefix: Put before its name.
        values: What to put in for placeholders.
        key: Its name.
        fields: Its keys.
    """

    def __init__(
        self, document: YamlDocument[ProfileInvalid], prefix: str, values: Mapping[str, str], key: str, fields: Any
    ) -> None:
        self._document, self._values, self._fields = document, values, fields
        self._path = () if fields is document.data else (key,)
        self._name, self._taken, self._notes = f"{prefix}{key}", set[str](), list[str]()

    def from_crew(self) -> Imported:
        if not isinstance(self._fields, dict):
            raise self._document.invalid("it is not a mapping", "write an agent or a task", *self._path)
        return self._task() if "expected_output" in self._fields else self._agent()

    def _agent(self) -> Imported:
        role, goal, backstory = map(self._text, ("role", "goal", "backstory"))
        prompt = f"Your role: {role}\n\n{backstory}\n\nYour goal: {goal}"
        profile: dict[str, Any] = {"description": " ".join(role.split()), "system_prompt": prompt}
        if self._fields.get("tools") is not None:
            profile["tools"] = self._tools()
        else:
            self._taken.add("tools")
            self._notes.append("it names no tools, so it can call all that the agent has: list them in `tools`")
        left = sorted(set(_PLACE.findall(prompt)))
        self._notes += [f"'{{{each}}}' stays as it is: give --set {each}=TEXT" for each in left]
        return self._profile(profile)

    def _task(self) -> Imported:
        about, gives = map(self._text, ("description", "expected_output"))
        name = re.sub(r"[^a-z0-9]+", "-", self._name.lower()).strip("-")[:64].strip("-")
        self._check_name(name)
        header: dict[str, Any] = {"name": name, "description": " ".join(about.split())[:_MAX_DESCRIPTION]}
        if self._fields.get("tools") is not None:
            header["allowed-tools"] = [re.sub(r"[^\w-]+", "-", each) for each in self._tools(unknown=True)]
        if agent := self._fields.get("agent"):
            self._taken.add("agent")
            self._notes.append(f"its agent is {str(agent)!r}: run it with the --profile of that name")
        text = f"{about}\n\nExpected output:\n{gives}\n"
        files: dict[str, str] = {}
        if inputs := sorted(set(_PLACE.findall(text))):
            header["metadata"] = {"worldagent-input": "input.json"}
            schema = {"type": "object", "properties": {each: {"type": "string"} for each in inputs}, "required": inputs}
            files["input.json"] = f"{json.dumps(schema, indent=2)}\n"
            text = f"A name in braces, such as {{{inputs[0]}}}, stands for that field of the input.\n\n{text}"
        files["SKILL.md"] = f"---\n{written_yaml(header)}---\n\n{text}"
        return self._made("skill", name, files)

    def from_ouro(self) -> Imported:
        profile = {key: value for key, value in self._fields.items() if key in _ROLE_KEYS}
        self._taken |= {*profile, "name", "guidelines"}
        if isinstance(guidelines := self._fields.get("guidelines"), str):
            prompt = str(profile.get("system_prompt") or "").strip()
            profile["system_prompt"] = f"{prompt}\n\n<guidelines>\n{guidelines.strip()}\n</guidelines>".strip()
        elif "guidelines" in self._fields:
            self._taken.discard("guidelines")
        for part in ("memory", "skills", "verification"):
            if isinstance(value := profile.get(part), dict):
                unknown = sorted(value.keys() - {*keys_of((part,))})
                self._notes += [f"`{part}.{key}` has no counterpart and is left out" for key in unknown]
                profile[part] = {key: each for key, each in value.items() if key not in unknown}
        if isinstance(memory := profile.get("memory"), dict) and memory.get("strategy") == "deletion":
            memory["strategy"] = "sliding_window"
        if profile.get("tools") is not None:
            profile["tools"] = self._tools()
        return self._profile(profile)

    def _profile(self, profile: Mapping[str, Any]) -> Imported:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", self._name).strip("-")[:64]
        self._check_name(name)
        text = written_yaml(profile)
        for problem in read_profile(Path(self._document.name), text.encode()).problems:
            raise self._document.invalid(problem.problem.partition(": ")[2], problem.remedy, *self._path)
        return self._made("profile", name, {"": text})

    def _made(self, kind: Literal["profile", "skill"], name: str, files: Mapping[str, str]) -> Imported:
        if left := sorted(self._fields.keys() - self._taken):
            self._notes.append(f"keys without a counterpart are left out: {', '.join(left)}")
        where = self._document.where(*self._path)
        return Imported(kind=kind, name=name, where=where, files=files, notes=tuple(self._notes))

    def _check_name(self, name: str) -> None:
        if not re.search(NAME, name):
            raise self._document.invalid("its name has no letter or digit", "rename it", *self._path)

    def _text(self, key: str) -> str:
        value = self._fields.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self._document.invalid(f"it has no text `{key}`", f"write `{key}: TEXT`", *self._path, key)
        self._taken.add(key)
        return _PLACE.sub(lambda found: self._values.get(found[1], found[0]), value.strip())

    def _tools(self, *, unknown: bool = False) -> list[str]:
        """Our tools for those that it names, so that it can call no more than before.

        Args:
            unknown: Whether unknown tools stay: a skill without any tool would have all, and one that is unknown gives
                it nothing. A profile must not name any.
        """
        self._taken.add("tools")
        given = self._fields["tools"]
        if not isinstance(given, list):
            raise self._document.invalid("`tools` is not a list", "write a list of names", *self._path, "tools")
        names = list(dict.fromkeys(_TOOLS.get(str(each), str(each)) for each in given))
        left = [] if unknown else [name for name in names if name not in BUILTIN]
        self._notes += [f"the tool {name[:80]!r} is left out: add yours to `tools`" for name in left]
        return [name for name in names if name not in left]
