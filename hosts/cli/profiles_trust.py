"""`profiles trust`: shows the profiles of a project. They then take effect as long as they stay the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ...core.errors import InvalidArgument
from ...mcp_client import StdioHost
from ...mcp_client.tools import McpEntry
from ...profiles import ProfileEntry, ProjectTrust, find_project
from .command import confirmed
from .exits import FAILED
from .output import Output
from .profiles import open_profiles

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.*?\[\]!/@+~-]+")


async def untrust(folder: Path | None, output: Output) -> int | None:
    """Stop trusting the project of a folder, and return the exit code.

    Raises:
        InvalidArgument: The folder is not in a project that has profiles.
    """
    project = _project(folder)
    if not ProjectTrust().untrust(project):
        output.failed("not_found", f"the project {str(project)!r} was not trusted", "see `worldagent profiles list`")
        return FAILED
    output.note(f"the project {str(project)!r} is no longer trusted")
    output.result({"removed": {"project": str(project)}})
    return None


async def trust(folder: Path | None, output: Output, *, yes: bool) -> int | None:
    """Show a project's profiles, ask unless `yes`, trust them as they were shown, and return the exit code.

    Raises:
        InvalidArgument: The folder is not in a project that has profiles, or no person can be asked.
    """
    project = _project(folder)
    store, profiles = ProjectTrust(), open_profiles(project)
    entries = [entry for entry in profiles.entries() if entry.level == "project"]
    standing = store.standing(project)
    if entries and standing != "trusted":
        changed = ", which have changed since they were trusted" if standing == "changed" else ""
        output.note(f"the profiles of the project {str(project)!r}{changed}:")
        for entry in entries:
            output.note(_shown(entry))
        question = f"Trust the profiles of {str(project)!r}?"
        if not (yes or confirmed(output, question, problem=f"trusting the project {str(project)!r} must be confirmed")):
            output.note("nothing was changed")
            return FAILED
    digest = store.trust(project, digest=profiles.project_digest)  # trusts what was shown, not a later change
    names = [entry.name for entry in entries]
    output.note(_joined([f"trusted as they are now: {', '.join(map(_quoted, names))}"]))
    output.result({"trusted": {"project": str(project), "profiles": names, "digest": digest}})
    return None


def _project(folder: Path | None) -> Path:
    project = find_project(folder)
    if project is None:
        start = "the current one" if folder is None else repr(str(folder))
        raise InvalidArgument(
            f"no folder at or above {start} has a folder .worldagent/profiles",
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


def _server(name: str, entry: McpEntry) -> Iterator[str]:
    """What a server is and what it can do. Only the names of variables and headers are shown."""
    host = entry.server().host
    shown = f"starts {shlex.join(host.argv)}" if isinstance(host, StdioHost) else f"connects to {host.label}"
    yield f"    MCP server {_quoted(name)}: {shown}"
    if entry.cwd is not None:
        yield f"      in the folder: {_quoted(str(entry.cwd))}"
    for what, names in (("variables", entry.env), ("headers", entry.headers)):
        if names:
            yield f"      with {what}: {', '.join(map(_quoted, names))}"
    for glob, risk in entry.risk.items():
        classes = (risk,) if isinstance(risk, str) else risk
        yield f"      says that the risk of {_quoted(glob)} is: {', '.join(classes) or 'none'}"
    if entry.trust_annotations:
        yield "      its tools' own statements of their risk are trusted (trust_annotations)"
    if entry.elicitation:
        yield "      it can ask you questions (elicitation)"


def _quoted(name: str) -> str:
    """A name in a form that differs from the text around it."""
    return name if _PLAIN.fullmatch(name) else repr(name)


def _joined(lines: Sequence[str]) -> str:
    """Lines to print, with unprintable characters escaped, so that text from a file cannot add a line."""
    return "\n".join("".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in line) for line in lines)
