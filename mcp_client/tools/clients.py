"""Servers as other programs write them, in their files and in the setting `mcp_servers`, as entries of ours.

The keys are those of each program's documentation. A key that limits a server is obeyed, or the server is refused. Any
other key that has no meaning here is not used, and one warning names it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from ...core.errors import InvalidArgument
from ...harness.yaml import near
from .server import McpEntry

LONGEST_FILE: Final = 8 << 20
"""Bytes of a file of another program; some keep much more in it than their servers."""

_LOG: Final = logging.getLogger("worldagent.mcp")
_OURS: Final = tuple(McpEntry.model_fields)
_HOLDERS: Final = ("mcpServers", "servers", "mcp_servers", "context_servers")
_BESIDE: Final = ("inputs", "$schema")  # keys beside `servers` that are not servers
_STARTS: Final = ("command", "url", "httpUrl", "serverUrl")  # a server has one of these

_RENAMED: Final[Mapping[str, str]] = {
    "httpUrl": "url",
    "serverUrl": "url",
    "http_headers": "headers",
    "transport": "type",
    "transportType": "type",
    "includeTools": "allow",
    "enabled_tools": "allow",
    "excludeTools": "deny",
    "disabledTools": "deny",
    "disabled_tools": "deny",
    "startup_timeout_sec": "connect_timeout",
    "tool_timeout_sec": "timeout",
}
_TYPES: Final[Mapping[str, str]] = {"local": "stdio", "streamableHttp": "http"}
_OF_VARIABLES: Final[Mapping[str, str]] = {"env_http_headers": "headers", "env_vars": "env"}  # names of variables
_OTHERS: Final = ("bearer_token_env_var", "enabled", "sandboxEnabled", "startup_timeout_ms", *_OF_VARIABLES)
_UNUSED: Final = frozenset(
    (
        *("alwaysAllow", "autoApprove", "watchPaths"),  # Cline, Kiro, Roo Code
        *("authProviderType", "description", "oauth", "targetAudience", "targetServiceAccount", "trust"),  # Gemini CLI
        *("default_tools_approval_mode", "experimental_environment", "oauth_resource", "required", "scopes", "tools"),
        *("auth", "dev", "envFile", "gallery", "sandbox", "version"),  # Codex (above), Cursor, VS Code
        *("alwaysLoad", "headersHelper"),  # Claude Code
        *("settings", "source"),  # Zed
    )
)

# `timeout` is in seconds for Cline and Roo Code, up to an hour, and in milliseconds for the others that have it. These
# keys, files and folders tell them apart.
_MAX_SECONDS: Final = 3600
_MIN_MILLISECONDS: Final = 1000
_OF_SECONDS: Final = ("alwaysAllow", "cline_mcp_settings.json", "mcp_settings.json", ".roo")
_OF_MILLISECONDS: Final = ("httpUrl", "trust", "includeTools", "excludeTools", ".gemini", ".mcp.json", ".amazonq")

_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def read_servers(given: object, files: Sequence[str | PathLike[str]] = ()) -> dict[str, McpEntry]:
    """Read the servers of the setting `mcp_servers` and those of files of other programs.

    Args:
        given: The setting: servers by name, or the whole object of another program. These override those of `files`.
        files: The paths; a later file overrides an earlier one. `.toml` is TOML, anything else JSON, with comments.

    Raises:
        InvalidArgument: A file cannot be read, or a server is invalid; the text names both. No value is shown.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgument("mcp_servers must be a table", remedy="give servers by name")
    found: dict[str, _Source] = {}
    for file in files:
        path = Path(os.path.expanduser(file))
        signs = (path.name, *path.parts)
        found |= {name: _Source(entry, f"{str(path)!r}: {name}", signs) for name, entry in _of_file(path).items()}
    found |= dict(_of_setting(given))
    unused: list[str] = []
    made = {name: _entry(source, unused) for name, source in found.items()}
    if unused:
        _warn_once("; ".join(unused))
    return made


def is_of_another_program(key: str) -> bool:
    """Whether it is a key that servers have in other programs only."""
    return key in _RENAMED or key in _OTHERS or key in _UNUSED


class _Source(NamedTuple):
    """A server as it is written. `signs` of its program are names of files and folders; None is our own setting."""

    entry: Any
    where: str
    signs: tuple[str, ...] | None


@cache
def _warn_once(unused: str) -> None:
    """The settings are read many times in a process."""
    _LOG.warning("keys of other programs that have no meaning here are not used: %s", unused)


# --- files ------------------------------------------------------------------------------------------------------------


def _of_file(path: Path) -> dict[str, Any]:
    document = _parsed(path)
    held = [document[key] for key in _HOLDERS if _are_servers(document.get(key))]
    if not held:  # a part of such a file has the servers alone
        if not document or not all(isinstance(each, dict) and {*_STARTS} & each.keys() for each in document.values()):
            raise InvalidArgument(f"{str(path)!r} has no MCP servers", remedy=f"name them in {', '.join(_HOLDERS)}")
        return document
    found = {name: entry for servers in held for name, entry in servers.items()}
    for key, wanted in (("allowed", True), ("excluded", False)):  # Gemini CLI
        limits = document.get("mcp")
        if isinstance(limits, dict) and isinstance(limits.get(key), list):
            found = {name: entry for name, entry in found.items() if (name in limits[key]) is wanted}
    return found


def _parsed(path: Path) -> dict[str, Any]:
    kind, problem = ("TOML" if path.suffix == ".toml" else "JSON"), "must be a JSON object"
    try:
        with path.open("rb") as stream:
            data = stream.read(LONGEST_FILE + 1)
        if len(data) > LONGEST_FILE:
            problem = f"has more than {LONGEST_FILE >> 20} MiB"
        elif isinstance(document := _read(data.decode("utf-8-sig"), kind), dict):
            return document
    except OSError as error:
        problem = f"cannot be read ({type(error).__name__})"
    except (ValueError, RecursionError) as error:
        problem = f"is not valid {kind}{f', line {error.lineno}' if isinstance(error, json.JSONDecodeError) else ''}"
    raise InvalidArgument(f"{str(path)!r} {problem}", remedy="correct it, or remove it from mcp_files")


def _read(text: str, kind: str) -> Any:
    """The content of a file. JSON is as editors write it: with comments, and commas after the last value."""
    if kind == "TOML":
        return tomllib.loads(text)
    for pattern in (_COMMENT, _COMMA):
        text = pattern.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    return json.loads(text)


def _are_servers(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(each, Mapping | McpEntry) for each in given.values())


def _of_setting(given: Mapping[str, Any]) -> Iterator[tuple[str, _Source]]:
    """The servers of the setting, which can hold the whole object of another program beside servers of ours."""
    whole = any(key in _HOLDERS and _are_servers(value) for key, value in given.items())
    for key, value in given.items():
        if key in _HOLDERS and _are_servers(value):
            yield from ((name, _Source(entry, f"mcp_servers.{name}", ())) for name, entry in value.items())
        elif key not in _BESIDE and (isinstance(value, Mapping | McpEntry) or not whole):
            yield key, _Source(value, f"mcp_servers.{key}", None)


# --- one server -------------------------------------------------------------------------------------------------------


def _entry(source: _Source, unused: list[str]) -> McpEntry:
    """An entry of ours. What it has and we have no use for is added to `unused`."""
    given, where, signs = source
    if isinstance(given, McpEntry):
        return given
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{where} must be a table", remedy="give a server's keys and values")
    values: dict[str, Any] = dict(given)
    if _is(values, "disabled", where) or not _is(values, "enabled", where, default=True):
        return McpEntry(disabled=True)  # what else it says can be what we have no use for
    if isinstance(values.get("command"), Mapping):  # Zed
        program = values.pop("command")
        values |= {"command": program.get("path"), **{key: program[key] for key in ("args", "env") if key in program}}
    _check_keys(values, where)
    made: dict[str, Any] = {
        _RENAMED.get(key, key): value for key, value in values.items() if _RENAMED.get(key, key) in _OURS
    }
    if isinstance(values.get("tools"), list):
        made["allow"] = values.pop("tools")
    if left := sorted(_UNUSED & values.keys()):
        unused.append(f"{where}: {', '.join(left)}")
    entry = _checked({**made, **dict(_converted(values, made, where, signs))}, where)
    entry._place = "" if where.startswith("mcp_servers.") else where
    return entry


def _converted(
    values: Mapping[str, Any], made: Mapping[str, Any], where: str, signs: tuple[str, ...] | None
) -> Iterator[tuple[str, Any]]:
    """Keys of ours whose values are written differently."""
    if str(made.get("type")) in _TYPES:
        yield "type", _TYPES[made["type"]]
    if "timeout" in values:
        yield "timeout", _seconds(values, where, signs)
    if "startup_timeout_ms" in values:
        yield "connect_timeout", _thousandth(values["startup_timeout_ms"])
    if "bearer_token_env_var" in values:
        yield "token", f"${{{values['bearer_token_env_var']}}}"
    for key, target in _OF_VARIABLES.items():
        if key in values:
            yield target, {**made.get(target, {}), **_variables(values[key], f"{where}.{key}")}


def _check_keys(values: Mapping[str, Any], where: str) -> None:
    known = (*_OURS, *_RENAMED, *_OTHERS)
    for key in values:
        if key not in known and key not in _UNUSED:
            remedy = f"{near(key, known)}the keys are: {', '.join(_OURS)}"
            raise InvalidArgument(f"{where}.{str(key)[:80]}: there is no such key", remedy=remedy)
    if _is(values, "sandboxEnabled", where):
        raise InvalidArgument(f"{where}: its sandbox cannot be applied", remedy=_instead(where))
    if {"settings", "source"} & values.keys() and not {"command", "url"} & values.keys():  # Zed
        raise InvalidArgument(f"{where}: an extension of its program starts it", remedy=_instead(where))
    if "sse" in (values.get("type"), values.get("transport"), values.get("transportType")):
        remedy = f"use its address of streamable HTTP, or {_instead(where)}"
        raise InvalidArgument(f"{where}.type: the transport 'sse' is not supported", remedy=remedy)


def _is(values: Mapping[str, Any], key: str, where: str, *, default: bool = False) -> bool:
    if not isinstance(value := values.get(key, default), bool):
        raise InvalidArgument(f"{where}.{key} must be true or false", remedy="give one of these")
    return value


def _seconds(values: Mapping[str, Any], where: str, signs: tuple[str, ...] | None) -> Any:
    """A `timeout` in seconds, whose unit depends on the program that the entry is for."""
    given, known = values["timeout"], {*values, *(signs or ())}
    if isinstance(given, bool) or not isinstance(given, int | float):
        return given
    if known.intersection(_OF_MILLISECONDS) or (signs is not None and given > _MAX_SECONDS):
        return _thousandth(given)
    if signs is None or known.intersection(_OF_SECONDS) or given < _MIN_MILLISECONDS:
        return given
    raise InvalidArgument(
        f"{where}.timeout is in seconds in some programs and in milliseconds in others, got {given!r}",
        remedy=_instead(where),
    )


def _thousandth(given: Any) -> Any:
    return given / 1000 if isinstance(given, int | float) and not isinstance(given, bool) else given


def _variables(given: Any, where: str) -> dict[str, str]:
    """Values that are variables, from their names."""
    if isinstance(given, list):
        named = [each.get("name") if isinstance(each, Mapping) else each for each in given]
        given = {str(name): name for name in named}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given.values()):
        raise InvalidArgument(f"{where} must be names of variables", remedy="give a list or table of names")
    return {key: f"${{{name}}}" for key, name in given.items()}


def _instead(where: str) -> str:
    name = where.rpartition(": ")[2].removeprefix("mcp_servers.")
    return f"describe it as mcp_servers.{name} yourself, or leave it out with disabled = true there"


def _checked(values: Mapping[str, Any], where: str) -> McpEntry:
    problems: list[str] = []
    try:
        return McpEntry.model_validate(values)
    except ValidationError as failure:
        for item in failure.errors(include_input=False, include_url=False):
            problems.append(f"{'.'.join(map(str, (where, *item['loc'])))}: {item['msg']}")
    raise InvalidArgument("; ".join(problems), remedy="correct these values")
