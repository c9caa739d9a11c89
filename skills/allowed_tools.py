"""Reads `allowed-tools` and `disallowed-tools` of a skill, which narrow what it can call.

In other programs these tools are approved in advance. Here the gate decides about each call as it does without a skill.
A skill without the key can call whatever the agent can call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..harness.gate import is_like
from ..harness.gate.texts import command_pattern, is_narrowed_command

SHELL: Final = "shell"

_CLAUDE_CODE_NAMES: Final[Mapping[str, str]] = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "Glob": "glob_files",
    "Grep": "grep_content",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Bash": SHELL,
}
"""Names of Claude Code, which most published packages use, and ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedTools:
    """The tools that a skill can call.

    Attributes:
        names: The tools, of those that the agent has; None means all of them.
        commands: What `shell` can run, as `git status` or `git log *`; None means any command.
        unknown: Entries that name none of the agent's tools. They give the skill nothing.
    """

    names: frozenset[str] | None = None
    commands: tuple[str, ...] | None = None
    unknown: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether the skill can call a tool."""
        return self.names is None or name in self.names

    def allows_command(self, text: str) -> bool:
        """Whether the skill can call `shell` with this command.

        A text that a shell would expand, or that has several commands, is none of those that were named.
        """
        return self.commands is None or any(is_narrowed_command(text, each) for each in self.commands)


def allowed_tools(entries: Sequence[str], tools: Collection[str], disallowed: Sequence[str] = ()) -> AllowedTools:
    """Narrow the tools of an agent by the entries of a package.

    Args:
        entries: The entries, such as `Read`, `Bash(git log:*)`, `web_search` or `notes__*`. Without any, nothing is
            narrowed.
        tools: The names of the tools that the agent can call.
        disallowed: Entries that are taken away from these. `Bash(git push:*)` takes all of `shell` away.
    """
    denied = {tool for entry in disallowed for tool in tools if is_like(tool, (_named(entry),))}
    tools = [tool for tool in tools if tool not in denied]
    if not entries:
        return AllowedTools(names=frozenset(tools)) if denied else AllowedTools()
    names: set[str] = set()
    commands: set[str] = set()
    any_command, unknown = False, []
    for entry in entries:
        name, rest = _named(entry), entry.partition("(")[2]
        found = {tool for tool in tools if is_like(tool, (name,))}
        command = _command(rest) if rest and name == SHELL else None
        if not found or (rest and command is None):
            unknown.append(entry)
            continue
        names |= found
        if command is not None:
            commands.add(command)
        any_command |= SHELL in found and command is None
    only = None if any_command or SHELL not in names else tuple(sorted(commands))
    return AllowedTools(names=frozenset(names), commands=only, unknown=tuple(unknown))


def _named(entry: str) -> str:
    """The tool, or the glob of tools, that an entry is about."""
    called = entry.partition("(")[0]
    return _CLAUDE_CODE_NAMES.get(called, called)


def _command(text: str) -> str | None:
    """The command of `Bash(...)` in the notation of a policy's `command`; None if it is not one command."""
    if not text.endswith(")"):
        return None
    command = " ".join(re.sub(r":\*$", " *", text[:-1].strip()).split())
    try:
        command_pattern(command)
    except ValueError:
        return None
    return command
