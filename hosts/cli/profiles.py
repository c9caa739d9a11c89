"""The commands `profiles list`, `show`, `check` and `schema`: the available profiles and their settings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .exits import USAGE
from .options import AgentOptions, app_option
from .output import Output, problem_objects

if TYPE_CHECKING:
    from ...core.errors import UsageError
    from ...profiles import Profile, ProfileEntry, Profiles

_SUFFIXES: Final = (".yaml", ".yml")

app = typer.Typer(name="profiles", no_args_is_help=True)


@app.callback()
def _profiles() -> None:
    """Profiles: the persona, tools and memory that an agent starts with, in YAML files.

    They are built in, in your own folder, or in .worldagent/profiles of a project that you trust. If names are equal,
    a later place overrides an earlier one. [bold]ask[/bold], [bold]chat[/bold], [bold]task[/bold], [bold]resume[/bold],
    [bold]serve[/bold] and [bold]approvals approve[/bold] and [bold]reject[/bold] take one as --profile.

    [bold]Example[/bold]

      worldagent profiles list
    """


@command(app, "list")
async def list_profiles(output: Output) -> None:
    """List all profiles, with their purpose. For those that cannot be used, it prints what is wrong.

    [bold]Example[/bold]

      worldagent profiles list --json
    """
    profiles = open_profiles()
    entries = profiles.entries()
    for problem in profiles.unreadable:
        output.note(f"{problem.problem}; {problem.remedy}")
    longest = max(len(entry.name) for entry in entries)
    lines = [f"{entry.name.ljust(longest)}  {entry.level.ljust(8)}  {description_text(entry)}" for entry in entries]
    value = {
        "profiles": [profile_object(entry) for entry in entries],
        "problems": problem_objects(profiles.unreadable),
    }
    output.result(value, "\n".join(lines))


@command(app, "show")
async def show_profile(output: Output, name: str) -> None:
    """Show every setting of a profile that takes effect, and which file and line it is from.

    A setting that no file gives is from [bold]default[/bold]. For an MCP server, only the program or address is shown.

    [bold]Example[/bold]

      worldagent profiles show searcher

    Args:
        name (NAME): The name of the profile, as `profiles list` shows it.
    """
    profiles = open_profiles()
    profile = profiles.get(name)
    entry = next(entry for entry in profiles.entries() if entry.used and entry.name == profile.name)
    settings = {
        key: {"value": value, "from": profile.sources.get(key, "default")} for key, value in _settings(profile).items()
    }
    lines = [f"# {profile.name}, {entry.level}: {entry.file}"]
    for key, shown in settings.items():
        lines += _lines(key, shown["value"], shown["from"])
    value = {"name": profile.name, "level": entry.level, "file": str(entry.file), "settings": settings}
    output.result({"profile": value}, "\n".join(lines))


@command(app, "check")
async def check_profiles(
    output: Output,
    which: list[str] | None = None,
    app: str | None = app_option(
        "An agent of your own: its functions, workers and shapes are known tools. It is opened for this."
    ),
) -> int | None:
    """Check profiles: whether their files can be read, what they extend, and whether the tools that they name exist.

    It prints all problems with file and line, and the exit code is then 2. Tools are checked once a profile and those
    that it extends have no other problem. The project does not have to be trusted.

    To check tools of your own agent, add --app.

    [bold]Examples[/bold]

      worldagent profiles check

      worldagent profiles check reviewer.yaml searcher --app shop:agent

    Args:
        which (FILE|NAME...): The profiles to check. Default: all profiles.
    """
    from ...core.errors import ProfileInvalid

    profiles = open_profiles()
    entries = _chosen(profiles, which) if which else profiles.entries()
    known, prefixes = await _tools(app, output)
    more = "" if app is not None else "; to use tools of your own agent, add --app"
    checked: list[tuple[ProfileEntry, list[UsageError]]] = []
    for entry in entries:
        unknown = entry.unknown_tools(known, prefixes)
        shown = [ProfileInvalid(each.problem, remedy=each.remedy + more) for each in unknown]
        checked.append((entry, [*entry.problems, *shown]))
    unread = () if which else profiles.unreadable
    problems = [*unread, *(problem for _, found in checked for problem in found)]
    fine = [f"{entry.file}: {entry.name}" for entry, found in checked if not found]
    if output.form == "text":
        for problem in problems:
            output.note(f"error: {problem.problem}\nremedy: {problem.remedy}")
    value = {
        "checked": [profile_object(entry) | {"problems": problem_objects(found)} for entry, found in checked],
        "problems": problem_objects(problems),
    }
    output.result(value, "\n".join(fine) or None)
    return USAGE if problems else None


@command(app, "schema", json=False)
async def print_schema(output: Output) -> None:
    """Print the JSON Schema of a profile's file, for editors.

    [bold]Example[/bold]

      worldagent profiles schema > profile.schema.json
    """
    from ...profiles.loading import profile_schema

    output.result({}, json.dumps(profile_schema(), indent=2))


def open_profiles(project: Path | None = None) -> Profiles:
    """All profiles for a project. None is the project of the current folder, if there is one."""
    from ...agent import Settings
    from ...profiles import Profiles, find_project

    return Profiles.open(Settings().profiles, project if project is not None else find_project())


def profile_object(entry: ProfileEntry) -> dict[str, Any]:
    """A profile as JSON, without its contents."""
    return {
        "name": entry.name,
        "level": entry.level,
        "file": str(entry.file),
        "used": entry.used,
        "trusted": entry.trusted,
        "description": "" if entry.profile is None else entry.profile.description,
        "problems": problem_objects(entry.problems),
    }


def description_text(entry: ProfileEntry) -> str:
    """What a profile is for, and why it cannot be used or is not."""
    shown = "" if entry.profile is None else " ".join(entry.profile.description.split())
    if entry.problems:
        shown = f"[cannot be used] {entry.problems[0].problem}"
    elif not entry.trusted:
        shown = f"[not trusted] {shown}".rstrip()
    return shown if entry.used or entry.problems else f"[overridden] {shown}".rstrip()


def _settings(profile: Profile) -> dict[str, Any]:
    """The settings that take effect, by dotted keys. Nothing about a server that can be secret is included."""
    found: dict[str, Any] = {
        "description": profile.description,
        "system_prompt": profile.system_prompt,
        "tools": None if profile.tools is None else list(profile.tools),
        "sections": profile.sections,
        "agents_md": profile.agents_md,
        "guard": profile.guard,
    }
    for name in ("memory", "skills", "verification"):
        found |= {f"{name}.{key}": value for key, value in getattr(profile, name)}
    options = profile.options
    found |= {f"options.{key}": getattr(options, key) for key in type(options).model_fields if key != "headers"}
    found["options.headers"] = None if options.headers is None else sorted(options.headers)
    for tool, settings in profile.tool_settings.items():
        found |= {f"tool_settings.{tool}.{key}": value for key, value in settings.items()}
    return found | {f"mcp_servers.{name}": each.label for name, each in profile.mcp_servers.items()}


def _lines(key: str, value: object, where: str) -> list[str]:
    """A setting as lines of YAML, with its origin in a comment."""
    if isinstance(value, str) and "\n" in value:
        return [f"{key}: |  # {where}", *(f"  {line}" for line in value.rstrip("\n").split("\n"))]
    shown = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return [f"{key}: {shown}  # {where}"]


def _chosen(profiles: Profiles, which: Sequence[str]) -> list[ProfileEntry]:
    found: list[ProfileEntry] = []
    for given in which:
        if os.sep in given or given.endswith(_SUFFIXES):
            found.append(profiles.entry(Path(given).expanduser()))
            continue
        named = [entry for entry in profiles.entries() if entry.name == given]
        if not named:
            profiles.get(given)  # raises an error that lists the known names
        found += named
    return found


async def _tools(app: str | None, output: Output) -> tuple[list[str], list[str]]:
    """The names of all known tools, and the prefixes of the tools of MCP servers."""
    from ...agent import Settings
    from ...graphs import SUBAGENT
    from ...harness import load_workers
    from ...tools import BUILTIN
    from .agents import open_agent

    settings = Settings()
    known = [*BUILTIN, SUBAGENT]
    if app is not None:
        async with open_agent(AgentOptions(app=app), output) as agent:
            known += [function.name for function in agent.functions]
    elif settings.workers is not None:
        known += [worker.name for worker in load_workers(settings.workers.expanduser())]
    prefixes = [server.prefix_as(name) for name, server in settings.servers().items()]
    return list(dict.fromkeys(known)), prefixes
