"""The commands `trust add`, `list` and `remove`: which projects' profiles and skills take effect."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .command import command, confirm
from .exits import FAILED
from .output import Output

if TYPE_CHECKING:
    from ...mcp_client.tools import McpEntry
    from ...profiles import ProfileEntry
    from ...skills import SkillHeader

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.*?\[\]!/@+~-]+")

app = typer.Typer(name="trust", no_args_is_help=True)


@app.callback()
def _trust() -> None:
    """Trust: the projects whose profiles and skills take effect.

    A profile names programs to start, and a skill has instructions and scripts. Those in .worldagent of a project have
    no effect until you trust the project, and none after one of them has changed.

    [bold]Example[/bold]

      worldagent trust list
    """


@command(app, "add")
async def add(output: Output, folder: Path | None = None, yes: bool = False) -> int | None:
    """Trust the profiles and skills of a project as they are now.

    It shows them first and asks, unless --yes is given. The project is the nearest folder at or above DIR that has a
    folder .worldagent/profiles or .worldagent/skills.

    [bold]Examples[/bold]

      worldagent trust add

      worldagent trust add ../shop --yes

    Args:
        folder (DIR): A folder of the project. Default: the current one.
        yes (--yes -y; Which): Trust it without asking.
    """
    from ...harness.trust import SKILLS_FOLDER, ProjectTrust, project_digest
    from ...skills.catalogue import SkillCatalogue
    from .profiles import open_profiles

    project, store = _project(folder), ProjectTrust()
    profiles = open_profiles(project)
    entries = [entry for entry in profiles.entries() if entry.level == "project"]
    digest = project_digest(project, profiles.project_folder)
    skills = SkillCatalogue([("project", project / SKILLS_FOLDER)]).entries
    standing = store.standing(project)
    if (entries or skills) and standing != "trusted":
        changed = ", which have changed since they were trusted" if standing == "changed" else ""
        output.note(f"the profiles and skills of the project {str(project)!r}{changed}:")
        for entry in entries:
            output.note(_shown(entry))
        for skill in skills:
            output.note(_skill(skill.name, skill.folder, skill.header))
        question = f"Trust the profiles and skills of {str(project)!r}?"
        problem = f"trusting the project {str(project)!r} must be confirmed"
        confirm(output, yes, question, problem=problem, kept="nothing was changed")
    digest = store.trust(project, digest=digest)  # trusts what was shown, not a later change
    names, skilled = [entry.name for entry in entries], [skill.name for skill in skills]
    output.note(_joined([f"trusted as they are now: {', '.join(map(_quoted, [*names, *skilled]))}"]))
    output.result({"trusted": {"project": str(project), "profiles": names, "skills": skilled, "digest": digest}})
    return None


@command(app, "list")
async def list_trusted(output: Output) -> None:
    """List the projects that you have trusted, and whether their profiles or skills have changed since.

    [bold]Example[/bold]

      worldagent trust list --json
    """
    from ...harness.trust import ProjectTrust

    store = ProjectTrust()
    found = [(project, store.standing(project)) for project in store.projects()]
    text = "\n".join(_joined([f"{standing}  {project}"]) for project, standing in found)
    output.result(
        {"projects": [{"project": str(project), "standing": standing} for project, standing in found]},
        text or "no project is trusted",
    )


@command(app, "remove")
async def remove(output: Output, folder: Path | None = None) -> int | None:
    """Stop trusting a project. The exit code is 1 if it was not trusted.

    [bold]Example[/bold]

      worldagent trust remove ../shop

    Args:
        folder (DIR): A folder of the project. Default: the current one.
    """
    from ...harness.trust import ProjectTrust

    store = ProjectTrust()
    # A project that is gone, or has no profiles any more, can still be removed.
    project = next((each for each in store.projects() if str(each) == str(folder)), None) or _project(folder)
    if not store.untrust(project):
        output.failed("not_found", f"the project {str(project)!r} was not trusted", "see `worldagent trust list`")
        return FAILED
    output.note(f"the project {str(project)!r} is no longer trusted")
    output.result({"removed": {"project": str(project)}})
    return None


def _project(folder: Path | None) -> Path:
    from ...core.errors import InvalidArgument
    from ...harness.trust import find_project

    project = find_project(folder)
    if project is None:
        start = "the current one" if folder is None else repr(str(folder))
        raise InvalidArgument(
            f"no folder at or above {start} has a folder .worldagent/profiles or .worldagent/skills",
            remedy="name a folder of the project that has one",
        )
    return project


def _shown(entry: ProfileEntry) -> str:
    """What a person should know about a profile before it takes effect."""
    lines = [f"  {_quoted(entry.name)}: {entry.file}"]
    lines += [f"    cannot be used: {problem.problem}" for problem in entry.problems]
    profile = entry.profile
    if profile is None:
        return _joined(lines)
    if profile.description:
        lines.append(f"    for: {' '.join(profile.description.split())}")
    tools = "all that the agent has" if profile.tools is None else ", ".join(map(_quoted, profile.tools)) or "none"
    lines.append(f"    tools: {tools}")
    if profile.options.headers:
        lines.append(f"    sends the model's service headers: {', '.join(map(_quoted, profile.options.headers))}")
    for name, server in profile.mcp_servers.items():
        lines += _server(name, server)
    if profile.system_prompt is not None:
        lines.append(f"    a prompt of {len(profile.system_prompt)} characters")
    return _joined(lines)


def _skill(name: str, folder: Path, header: SkillHeader | None) -> str:
    """What a person should know about a skill before it takes effect."""
    lines = [f"  {_quoted(name)}: {folder}"]
    if header is None:
        lines.append("    cannot be used; see `worldagent skills check`")
    else:
        lines.append(f"    for: {' '.join(header.description.split())}")
        if header.allowed_tools:
            lines.append(f"    tools: {', '.join(map(_quoted, header.allowed_tools))}")
    return _joined(lines)


def _server(name: str, entry: McpEntry) -> Iterator[str]:
    """What a server is and what it can do. Only the names of variables and headers are shown."""
    command = entry.command
    shown = f"connects to {entry.label}" if command is None else f"starts {shlex.join([command, *entry.args])}"
    yield f"    MCP server {_quoted(name)}: {shown}"
    if entry.cwd is not None:
        yield f"      in the folder: {_quoted(str(entry.cwd))}"
    for what, names in (("variables", entry.env), ("headers", entry.headers)):
        if names:
            yield f"      with {what}: {', '.join(map(_quoted, names))}"
    if entry.variables:
        yield f"      gets these values of the setting mcp_variables: {', '.join(map(_quoted, entry.variables))}"
    for glob, risk in entry.risk.items():
        classes = (risk,) if isinstance(risk, str) else risk
        yield f"      says that the risk of {_quoted(glob)} is: {', '.join(classes) or 'none'}"
    if entry.trust_annotations:
        yield "      its tools' own statements of their risk are trusted (trust_annotations)"
    if entry.skills:
        yield "      its skills are offered to the conversation (skills)"
    if entry.elicitation:
        yield "      it can ask you questions (elicitation)"


def _quoted(name: str) -> str:
    """A name in a form that differs from the text around it."""
    return name if _PLAIN.fullmatch(name) else repr(name)


def _joined(lines: Sequence[str]) -> str:
    """Lines to print, with unprintable characters escaped, so that text from a file cannot add a line."""
    return "\n".join("".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in line) for line in lines)
