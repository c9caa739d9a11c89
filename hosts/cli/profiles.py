"""The commands `profiles list`, `show`, `check` and `schema`: which profiles there are and what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ...core.errors import ProfileInvalid, UsageError
from ...graphs import SUBAGENT
from ...profiles import Profile, ProfileEntry, Profiles, find_project
from ._profiles_options import (
    ProfilesCheckOptions,
    ProfilesListOptions,
    ProfilesSchemaOptions,
    ProfilesShowOptions,
)
from .options import AgentOptions
from .output import Output
from .session import USAGE, open_agent, run

_SUFFIXES: Final = (".yaml", ".yml")


def list_profiles(options: ProfilesListOptions) -> int:
    """Run `profiles list` and return its exit code."""
    output = Output.of(json=options.json)
    return run(output, lambda: _list(output))


def show_profile(options: ProfilesShowOptions) -> int:
    """Run `profiles show` and return its exit code."""
    output = Output.of(json=options.json)
    return run(output, lambda: _show(options, output))


def check_profiles(options: ProfilesCheckOptions) -> int:
    """Run `profiles check` and return its exit code."""
    output = Output.of(json=options.json)
    return run(output, lambda: _check(options, output))


def print_schema(_: ProfilesSchemaOptions) -> int:
    """Run `profiles schema` and return its exit code."""
    output = Output.of(json=False)

    async def show() -> None:
        from ...profiles.files import profile_schema

        output.result({}, json.dumps(profile_schema(), indent=2))

    return run(output, show)


def open_profiles(project: Path | None = None) -> Profiles:
    """All profiles for a project; None is the one of the current folder, if it is in one."""
    from ...agent import Settings

    return Profiles.open(Settings().profiles, project if project is not None else find_project())


def profile_object(entry: ProfileEntry) -> dict[str, Any]:
    """A profile as JSON, without what it says."""
    return {
        "name": entry.name,
        "level": entry.level,
        "file": str(entry.file),
        "used": entry.used,
        "trusted": entry.trusted,
        "description": "" if entry.profile is None else entry.profile.description,
        "problems": [_problem(problem) for problem in entry.problems],
    }


# --- listing ---------------------------------------------------------------------------------------------------------


async def _list(output: Output) -> None:
    profiles = open_profiles()
    entries = profiles.entries()
    for problem in profiles.unreadable:
        output.note(f"{problem.problem}; {problem.remedy}")
    longest = max(len(entry.name) for entry in entries)
    lines = [f"{entry.name.ljust(longest)}  {entry.level.ljust(8)}  {_told(entry)}" for entry in entries]
    value = {
        "profiles": [profile_object(entry) for entry in entries],
        "problems": [_problem(problem) for problem in profiles.unreadable],
    }
    output.result(value, "\n".join(lines))


def _told(entry: ProfileEntry) -> str:
    told = "" if entry.profile is None else " ".join(entry.profile.description.split())
    if entry.problems:
        told = f"[cannot be used] {entry.problems[0].problem}"
    elif not entry.trusted:
        told = f"[not trusted] {told}".rstrip()
    return told if entry.used or entry.problems else f"[overridden] {told}".rstrip()


# --- showing ---------------------------------------------------------------------------------------------------------


async def _show(options: ProfilesShowOptions, output: Output) -> None:
    profiles = open_profiles()
    profile = profiles.get(options.name)
    entry = next(entry for entry in profiles.entries() if entry.used and entry.name == profile.name)
    settings = {
        key: {"value": value, "from": profile.sources.get(key, "default")} for key, value in _settings(profile).items()
    }
    lines = [f"# {profile.name}, {entry.level}: {entry.file}"]
    for key, told in settings.items():
        lines += _lines(key, told["value"], told["from"])
    value = {"name": profile.name, "level": entry.level, "file": str(entry.file), "settings": settings}
    output.result({"profile": value}, "\n".join(lines))


def _settings(profile: Profile) -> dict[str, Any]:
    """What takes effect, by dotted keys. Of servers there is nothing that may be secret."""
    found: dict[str, Any] = {
        "description": profile.description,
        "system_prompt": profile.system_prompt,
        "tools": None if profile.tools is None else list(profile.tools),
        "sections": profile.sections,
        "agents_md": profile.agents_md,
    }
    for name in ("memory", "skills", "verification"):
        part = getattr(profile, name)
        found |= {f"{name}.{each.name}": getattr(part, each.name) for each in fields(part)}
    options = profile.options
    found |= {f"options.{key}": getattr(options, key) for key in type(options).model_fields if key != "headers"}
    found["options.headers"] = None if options.headers is None else sorted(options.headers)
    for tool, settings in profile.tool_settings.items():
        found |= {f"tool_settings.{tool}.{key}": value for key, value in settings.items()}
    return found | {f"mcp_servers.{name}": each.server().host.label for name, each in profile.mcp_servers.items()}


def _lines(key: str, value: object, where: str) -> list[str]:
    """A setting as a line of YAML, with where it is from beside it."""
    if isinstance(value, str) and "\n" in value:
        return [f"{key}: |  # {where}", *(f"  {line}" for line in value.rstrip("\n").split("\n"))]
    told = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return [f"{key}: {told}  # {where}"]


# --- checking --------------------------------------------------------------------------------------------------------


async def _check(options: ProfilesCheckOptions, output: Output) -> int | None:
    profiles = open_profiles()
    entries = _chosen(profiles, options.which) if options.which else profiles.entries()
    known, prefixes = await _tools(options, output)
    more = "" if options.app is not None else "; tools of an agent of your own are known with --app"
    checked: list[tuple[ProfileEntry, list[UsageError]]] = []
    for entry in entries:
        unknown = entry.unknown_tools(known, prefixes)
        told = [ProfileInvalid(each.problem, remedy=each.remedy + more) for each in unknown]
        checked.append((entry, [*entry.problems, *told]))
    unread = () if options.which else profiles.unreadable
    problems = [*unread, *(problem for _, found in checked for problem in found)]
    fine = [f"{entry.file}: {entry.name}" for entry, found in checked if not found]
    if output.form == "text":
        for problem in problems:
            output.note(f"error: {problem.problem}\nremedy: {problem.remedy}")
    value = {
        "checked": [
            profile_object(entry) | {"problems": [_problem(problem) for problem in found]} for entry, found in checked
        ],
        "problems": [_problem(problem) for problem in problems],
    }
    output.result(value, "\n".join(fine) or None)
    return USAGE if problems else None


def _chosen(profiles: Profiles, which: Sequence[str]) -> list[ProfileEntry]:
    found: list[ProfileEntry] = []
    for given in which:
        if os.sep in given or given.endswith(_SUFFIXES):
            found.append(profiles.entry(Path(given).expanduser()))
            continue
        named = [entry for entry in profiles.entries() if entry.name == given]
        if not named:
            profiles.get(given)  # says which there are
        found += named
    return found


async def _tools(options: ProfilesCheckOptions, output: Output) -> tuple[list[str], list[str]]:
    """The names of tools that there are, and what those of MCP servers begin with."""
    from ...agent import Settings
    from ...harness import load_workers
    from ...tools import BUILTIN

    settings = Settings()
    known = [*BUILTIN, SUBAGENT]
    if options.app is not None:
        async with open_agent(AgentOptions(app=options.app), output) as agent:
            known += [function.name for function in agent.functions]
    elif settings.workers is not None:
        known += [worker.name for worker in load_workers(settings.workers.expanduser())]
    servers = {name: entry.server() for name, entry in settings.mcp_servers.items()}
    return list(dict.fromkeys(known)), [server.prefix_as(name) for name, server in servers.items()]


def _problem(problem: UsageError) -> dict[str, str]:
    return {"code": problem.code, "message": problem.problem, "remedy": problem.remedy}


__all__ = [
    "check_profiles",
    "list_profiles",
    "open_profiles",
    "print_schema",
    "profile_object",
    "show_profile",
]
