"""Parses a file's bytes into settings with their lines (P1). `catalogue` finds the profile that it extends.

A file is checked completely before it is used, and all its problems are reported, not only the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from ...core.errors import InvalidArgument, ProfileInvalid
from ...harness.yaml import LONGEST, YamlDocument, read_yaml
from ..file import Key, ProfileFile, Setting
from ..near import near
from .keys import NAME, VERSION, ProfileKeys
from .wanted import keys_of, wanted

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
        document = read_yaml(data[: LONGEST + 1], name=str(path), error=ProfileInvalid)
    except ProfileInvalid as error:
        return ProfileFile(path=path, name=path.stem, where=str(path), problems=(error,))
    said = document.data
    name = _name(said, path)
    where = document.where("name")
    if not isinstance(said, dict):
        problem = _no_mapping(f"{path}:1", empty=said is None)
        return ProfileFile(path=path, name=path.stem, where=f"{path}:1", problems=(problem,))
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
        where=where,
        extends=_named(said.get("extends")),
        extends_at=document.where("extends"),
        settings={} if keys is None or problems else dict(_settings(keys, document)),
        problems=tuple(problems),
    )


def _name(said: object, path: Path) -> str:
    """The name in the file, or the file's own name if that one is invalid."""
    return (_named(said.get("name")) if isinstance(said, dict) else None) or path.stem


def _named(given: object) -> str | None:
    """A valid name; None for any other value."""
    return given if isinstance(given, str) and re.search(NAME, given) else None


def _no_mapping(where: str, *, empty: bool) -> ProfileInvalid:
    problem = "is empty" if empty else "must be a mapping"
    return ProfileInvalid(f"{where} {problem}", remedy="write 'key: value' lines, such as 'description: reads the web'")


def _checked(document: YamlDocument) -> tuple[ProfileKeys | None, list[ProfileInvalid]]:
    try:
        keys = ProfileKeys.model_validate_json(json.dumps(_with_integers(document.data)), strict=True)
    except ValidationError as failure:
        found = failure.errors(include_input=False, include_url=False)
    else:
        return keys, list(_server_problems(keys, document))
    kinds: dict[tuple[str | int, ...], str] = {}
    said: dict[tuple[str | int, ...], str] = {}
    for item in found:
        path = _path(item["loc"], document)
        kinds.setdefault(path, item["type"])
        said.setdefault(path, item["msg"])
    paths = sorted(kinds, key=lambda path: document.lines.get(path, 0))
    problems = [_problem(document, path, kinds[path], said[path]) for path in paths[:MAX_PROBLEMS]]
    if len(paths) > MAX_PROBLEMS:
        where = document.where(*paths[MAX_PROBLEMS])
        more = f"{where}: {len(paths) - MAX_PROBLEMS} more problems begin here"
        problems.append(ProfileInvalid(more, remedy="fix the problems above first"))
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


def _path(place: tuple[str | int, ...], document: YamlDocument) -> tuple[str | int, ...]:
    """The place of an error in the file, without the parts that pydantic adds for the alternatives of a type."""
    path: tuple[str | int, ...] = ()
    for part in place:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _problem(document: YamlDocument, path: tuple[str | int, ...], kind: str, said: str) -> ProfileInvalid:
    where, called = document.where(*path), _dotted(path)
    if kind == "header":
        problem, _, remedy = said.partition("; ")
        return ProfileInvalid(f"{where}: {called!r}: {problem}", remedy=remedy)
    if kind == "extra_forbidden":
        above, key = path[:-1], str(path[-1])[:80]
        known = keys_of(above)
        owner = f"{_dotted(above)!r}" if above else "a profile"
        listed = f"the keys are: {', '.join(known)}" if known else "leave it out"
        return ProfileInvalid(f"{where}: {owner} has no key {key!r}", remedy=near(key, known) + listed)
    if path == ("profile",):
        return ProfileInvalid(
            f"{where}: this version of worldagent cannot read the file's version",
            remedy=f"write 'profile: {VERSION}', or use a newer version of worldagent",
        )
    words = wanted(path)
    quotes = ", in quotes where it looks like a number" if words == "a text" else ""
    return ProfileInvalid(f"{where}: {called!r} is not {words}", remedy=f"give {words}{quotes}")


def _server_problems(keys: ProfileKeys, document: YamlDocument) -> Iterator[ProfileInvalid]:
    """Problems of servers whose values have the right types."""
    for name, entry in (keys.mcp_servers or {}).items():
        path: tuple[str, ...] = ("mcp_servers", name)
        for variable in entry.env:
            if not variable or "=" in variable or "\0" in variable:
                place = (*path, "env", variable)
                problem = (
                    f"{document.where(*place)}: {variable[:80]!r} in {_dotted(path)!r} is not a valid variable name"
                )
                yield ProfileInvalid(problem, remedy="give a name without '='")
        if "\0" in str(entry.cwd):
            problem = f"{document.where(*path, 'cwd')}: 'cwd' in {_dotted(path)!r} is not a valid path"
            yield ProfileInvalid(problem, remedy="give a path without '\\0'")
        try:
            entry.server()
        except InvalidArgument as error:
            yield ProfileInvalid(f"{document.where(*path)}: {_dotted(path)!r}: {error.problem}", remedy=error.remedy)


def _settings(keys: ProfileKeys, document: YamlDocument) -> Iterator[tuple[Key, Setting]]:
    for key in keys.model_fields_set - {*_HEAD}:
        yield from _flat((key,), getattr(keys, key), document)


def _flat(key: Key, value: Any, document: YamlDocument) -> Iterator[tuple[Key, Setting]]:
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


__all__ = ["read_profile"]
