"""Parses a file's bytes into settings with their lines (P1). `catalogue` finds the profile that it extends.

A file is checked completely before it is used, and all its problems are reported, not only the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, ValidationError

from ..core.errors import InvalidArgument, ProfileInvalid
from ..core.generation import GenerationOptions
from ..harness.yaml import LONGEST, YamlDocument, near, read_yaml
from ..mcp_client.tools import McpEntry
from ..mcp_client.tools.clients import is_of_another_program
from .profile import Key, MemoryOverrides, Part, ProfileFile, Sections, Setting, Skills, Verification

_TEXTS: Mapping[str, str] = {"boolean": "true or false", "object": "a mapping of keys and values", "null": "null"}


def wanted(path: tuple[str | int, ...]) -> str:
    """Describe the values that a place in a file accepts."""
    node = _node(path)
    return _words(node) if node is not None else "what the schema says"


def keys_of(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that a mapping at this place accepts. Empty if it is not a mapping, or if its keys are names."""
    node = _node(path)
    for each in _choices(node) if node is not None else ():
        if "properties" in each and "additionalProperties" in each:
            return tuple(each["properties"])
    return ()


@cache
def _schema() -> dict[str, Any]:
    return profile_schema()


def _node(path: tuple[str | int, ...]) -> dict[str, Any] | None:
    node: dict[str, Any] | None = _schema()
    for part in path:
        node = next((found for each in _choices(node or {}) if (found := _below(each, part)) is not None), None)
    return node


def _below(node: Mapping[str, Any], part: str | int) -> dict[str, Any] | None:
    if isinstance(part, int):
        found = node.get("items")
    else:
        found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _choices(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return [_schema()["$defs"][node["$ref"].rpartition("/")[2]]]
    return [choice for each in node["anyOf"] for choice in _choices(each)] if "anyOf" in node else [node]


def _words(node: Mapping[str, Any]) -> str:
    choices = [each for each in _choices(node) if each.get("type") != "null"]
    return " or ".join(dict.fromkeys(map(_one, choices)))


def _one(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if node.get("pattern") == NOT_BLANK:
        return "a text with more than blanks"
    if node.get("pattern") == NAME:
        return "1 to 64 letters, digits, '_' and '-'"
    match node.get("type"):
        case "string":
            return "a text of 1 or more characters" if node.get("minLength") else "a text"
        case "array":
            return f"a list, each item {_words(node.get('items', {}))}"
        case "integer" | "number" as kind:
            return ("a whole number" if kind == "integer" else "a number") + _bounds(node)
        case kind:
            return _TEXTS.get(str(kind), "what the schema says")


def _bounds(node: Mapping[str, Any]) -> str:
    high = node.get("maximum")
    if "exclusiveMinimum" in node:
        return f" above {node['exclusiveMinimum']}" + (f" and at most {high}" if high is not None else "")
    return f" from {node['minimum']}" + (f" to {high}" if high is not None else " on") if "minimum" in node else ""


VERSION: Final = 1
NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
"""The pattern of a profile's name."""

NOT_BLANK: Final = r"\S"


_Name = Annotated[str, Field(pattern=NAME)]


_Output = Annotated[
    int, Field(default=None, ge=1_000, le=10_000_000, description="Characters of a result; a longer one is cut")
]
_Timeout = Annotated[float, Field(default=None, gt=0, le=86_400, description="The most seconds that one call can take")]


class CutKeys(Part):
    """Settings of a tool whose result can be long."""

    output_limit: _Output


class TimedKeys(Part):
    """Settings of a tool that can take long."""

    timeout: _Timeout


class BothKeys(CutKeys, TimedKeys):
    """Settings of a tool that can take long and whose result can be long."""


class ToolKeys(Part):
    """Settings of the built-in tools. Each tool has only some of them."""

    read_file: CutKeys | None = None
    glob_files: CutKeys | None = None
    grep_content: CutKeys | None = None
    shell: BothKeys | None = None
    web_search: TimedKeys | None = None
    web_fetch: BothKeys | None = None


class ProfileKeys(Part):
    """The persona, tools and memory settings that an agent starts with."""

    profile: int = Field(VERSION, ge=VERSION, le=VERSION, description="The version of the file format")
    name: _Name = Field("", validate_default=False, description="The profile's name; by default the file's name")
    description: str = Field("", description="What the profile is for, shown in lists")
    extends: _Name = Field(
        "",
        validate_default=False,
        description="The profile that supplies the keys not set here; its own name means the one that it overrides",
    )
    system_prompt: str | None = Field(
        None, min_length=1, pattern=NOT_BLANK, description="Instructions that follow the agent's identity"
    )
    tools: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, description="Names and globs of the tools that the agent can call; null is those without a profile"
    )
    sections: Sections = Field(
        "auto", description="Which sections the instructions have; all adds those for demanding work"
    )
    agents_md: bool = Field(default=True, description="Whether the instructions mention AGENTS.md files")
    guard: bool | None = Field(
        default=None,
        description="Whether no model of a turn reads what a stranger can have written; null is the setting guard",
    )
    memory: MemoryOverrides | None = None
    skills: Skills | None = None
    verification: Verification | None = None
    options: GenerationOptions | None = None
    tool_settings: ToolKeys | None = None
    mcp_servers: dict[Annotated[str, Field(min_length=1)], McpEntry] | None = Field(
        None, description="MCP servers whose tools can be called, by name, as in the settings"
    )


# Rules that the constructors of a server check, but not its model.
_ENTRY: Final[Mapping[str, Mapping[str, Any]]] = {
    "command": {"minLength": 1},
    "url": {"pattern": r"^(https?://[^\s/?#@]+([/?#]\S*)?|\$\{[^\s{}]+\}\S*)$"},
    "prefix": {"pattern": r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$"},
}


def profile_schema() -> dict[str, Any]:
    """The JSON Schema of a profile's file, for editors. It accepts exactly the files that can be read."""
    schema = ProfileKeys.model_json_schema()
    entry = schema["$defs"]["McpEntry"]
    for key, more in _ENTRY.items():
        entry["properties"][key]["anyOf"][0] |= more
    entry["properties"]["allow"]["items"]["minLength"] = 1
    entry["oneOf"] = [{"required": [key], "properties": {key: {"type": "string"}}} for key in ("command", "url")]
    entry["description"] = "A program by `command`, or an address by `url`"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "worldagent profile"}
    return {**head, **_without_noise(schema)}


def _without_noise(schema: Any) -> Any:
    """Remove titles, which only repeat the keys, and empty defaults from a schema."""
    if isinstance(schema, list):
        return [_without_noise(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} | ({"default"} if schema.get("default") in (None, "") else set())
    return {key: _without_noise(each) for key, each in schema.items() if key not in noise}


_ANY: Final = "https://any.example"
"""Stands for the value of each variable, which the settings have; it makes a valid address of `${BASE}/mcp` too."""

MAX_PROBLEMS: Final = 20  # the most problems that are reported per file
_HEAD: Final = ("profile", "name", "extends")  # keys that are not settings of the agent
_OPEN: Final = ("mcp_servers",)  # mappings whose keys are names, and whose values are one setting each


def read_profile(path: Path, data: bytes) -> ProfileFile:
    """Read one profile. Errors in the file are in its `problems`.

    Args:
        path: The path of the file, for errors; it is not opened.
        data: The content of the file.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    try:
        document = read_yaml(data[: LONGEST + 1], name=str(path), error=ProfileInvalid, colons=True)
    except ProfileInvalid as error:
        return ProfileFile(path=path, name=path.stem, where=str(path), problems=(error,))
    said = document.data
    if not isinstance(said, dict):
        problem = f"{path}:1 {'is empty' if said is None else 'must be a mapping'}"
        invalid = ProfileInvalid(problem, remedy="write 'key: value' lines, such as 'description: reads the web'")
        return ProfileFile(path=path, name=path.stem, where=f"{path}:1", problems=(invalid,))
    name = _named(said.get("name")) or path.stem
    keys, problems = _checked(document)
    if not re.search(NAME, name) and "name" not in said:
        problems.append(
            ProfileInvalid(
                f"{path}:1 has no name, and the file's name {name[:80]!r} is not a valid profile name",
                remedy="write 'name: ' and 1 to 64 letters, digits, '_' or '-'",
            )
        )
    return ProfileFile(
        path=path,
        name=name,
        where=document.where("name"),
        extends=_named(said.get("extends")),
        extends_at=document.where("extends"),
        settings={} if keys is None or problems else dict(_settings(keys, document)),
        problems=tuple(problems),
    )


def _named(given: object) -> str | None:
    """A valid name; None for any other value."""
    return given if isinstance(given, str) and re.search(NAME, given) else None


def _checked(document: YamlDocument[ProfileInvalid]) -> tuple[ProfileKeys | None, list[ProfileInvalid]]:
    try:
        keys = ProfileKeys.model_validate_json(json.dumps(_with_integers(document.data)), strict=True)
    except ValidationError as failure:
        found = failure.errors(include_input=False, include_url=False)
    else:
        return keys, list(_server_problems(keys, document))
    first: dict[tuple[str | int, ...], tuple[str, str]] = {}
    for item in found:
        first.setdefault(_path(item["loc"], document), (item["type"], item["msg"]))
    paths = sorted(first, key=lambda path: document.lines.get(path, 0))
    problems = [_problem(document, path, *first[path]) for path in paths[:MAX_PROBLEMS]]
    if len(paths) > MAX_PROBLEMS:
        more = f"{len(paths) - MAX_PROBLEMS} more problems begin here"
        problems.append(document.invalid(more, "fix the problems above first", *paths[MAX_PROBLEMS]))
    return None, problems


def _with_integers(value: Any) -> Any:
    """Convert numbers such as 50.0 to 50, because a JSON Schema accepts both as an integer."""
    match value:
        case dict():
            return {key: _with_integers(each) for key, each in value.items()}
        case list():
            return [_with_integers(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _path(place: tuple[str | int, ...], document: YamlDocument[ProfileInvalid]) -> tuple[str | int, ...]:
    """The place of an error in the file, without the parts that pydantic adds for the alternatives of a type."""
    path: tuple[str | int, ...] = ()
    for part in place:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _problem(
    document: YamlDocument[ProfileInvalid], path: tuple[str | int, ...], kind: str, said: str
) -> ProfileInvalid:
    called = _dotted(path)
    if kind == "header":
        problem, _, remedy = said.partition("; ")
        return document.invalid(f"{called!r}: {problem}", remedy, *path)
    if kind == "extra_forbidden":
        above, key = path[:-1], str(path[-1])[:80]
        known = keys_of(above)
        owner = f"{_dotted(above)!r}" if above else "a profile"
        listed = f"the keys are: {', '.join(known)}" if known else "leave it out"
        if above[:1] == ("mcp_servers",) and is_of_another_program(key):
            listed = "it is a key of another program: use its file in the setting mcp_files"
        program = program_of(document.data, path)
        meant = near(key, known)
        if program is not None:
            meant = f"{program} has it; `worldagent import {document.name}` writes a profile of the file; "
        return document.invalid(f"{owner} has no key {key!r}", meant + listed, *path)
    if path == ("profile",):
        remedy = f"write 'profile: {VERSION}', or use a newer version of worldagent"
        return document.invalid("this version of worldagent cannot read the file's version", remedy, *path)
    words = wanted(path)
    quotes = ", in quotes where it looks like a number" if words == "a text" else ""
    return document.invalid(f"{called!r} is not {words}", f"give {words}{quotes}", *path)


_CREW_KEYS: Final = ({"role", "goal"}, {"description", "expected_output"})  # of an agent and of a task


def program_of(data: Any, path: tuple[str | int, ...] = ()) -> str | None:
    """The other program whose file this is, of those that `importing` knows; None if it is none of theirs.

    Args:
        data: The content of a file.
        path: The path of a key in it; empty for the file.
    """
    first = data.get(path[0]) if path else next(iter(data.values()), None)
    if isinstance(first, dict) and any(first.keys() >= keys for keys in _CREW_KEYS):
        return "CrewAI"
    return "ouro" if path in (("guidelines",), ("skills", "allowed")) else None


def _server_problems(keys: ProfileKeys, document: YamlDocument[ProfileInvalid]) -> Iterator[ProfileInvalid]:
    """Problems of servers whose values have the right types."""
    for name, entry in (keys.mcp_servers or {}).items():
        path: tuple[str, ...] = ("mcp_servers", name)
        for variable in entry.env:
            if not variable or "=" in variable or "\0" in variable:
                problem = f"{variable[:80]!r} in {_dotted(path)!r} is not a valid variable name"
                yield document.invalid(problem, "give a name without '='", *path, "env", variable)
        if "\0" in str(entry.cwd):
            problem = f"'cwd' in {_dotted(path)!r} is not a valid path"
            yield document.invalid(problem, "give a path without '\\0'", *path, "cwd")
        try:
            entry.server(lambda _: _ANY)
        except InvalidArgument as error:
            yield document.invalid(f"{_dotted(path)!r}: {error.problem}", error.remedy, *path)


def _settings(keys: ProfileKeys, document: YamlDocument[ProfileInvalid]) -> Iterator[tuple[Key, Setting]]:
    for key in keys.model_fields_set - {*_HEAD}:
        yield from _flat((key,), getattr(keys, key), document)


def _flat(key: Key, value: Any, document: YamlDocument[ProfileInvalid]) -> Iterator[tuple[Key, Setting]]:
    """The settings below a key. A mapping that is null or empty has none."""
    if key[0] in _OPEN and len(key) == 1:
        for name, each in (value or {}).items():
            yield (*key, name), Setting(value=each, where=document.where(*key, name))
    elif isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield from _flat((*key, name), getattr(value, name), document)
    elif value is not None or not keys_of(key):
        items = tuple(document.where(*key, place) for place in range(len(value))) if isinstance(value, list) else ()
        given = tuple(value) if isinstance(value, list) else value
        yield key, Setting(value=given, where=document.where(*key), items=items)


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))[:200] or "the profile"
