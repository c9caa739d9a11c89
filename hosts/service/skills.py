"""The calls about skills: their arguments and records, and what they do (T6)."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from ...agent import WorldAgent
from ...core.errors import UnknownSkill
from ...skills import SkillEntry, SkillHeader
from ...skills.package import Starter
from .arguments import WorkspaceArguments
from .call import Call
from .operation import operation
from .records import Answer
from .validation import Label, Wire

# --- arguments --------------------------------------------------------------------------------------------------------


class SkillShowArguments(WorkspaceArguments):
    """Arguments of `skill_show`."""

    skill: Label = Field(description="the name of a skill, from `skill_list`", examples=["meeting-notes"])


# --- records ----------------------------------------------------------------------------------------------------------


class SkillRecord(Wire):
    """A skill that the agent can run."""

    name: str
    description: str
    level: str = Field(
        description="where it is from: `given` in code, the folder of the `user`, a `project`, or an MCP `host`"
    )
    argument_hint: str | None = Field(description="what to write in a request, for people")
    started_by: list[Starter] = Field(
        description="who can start it: `run_skill` needs `people`, a conversation `models`"
    )


class SkillDetails(SkillRecord):
    """A skill with what its package says of it, as it is now."""

    license: str | None
    compatibility: str | None = Field(description="what it needs, such as a program or the network")
    metadata: dict[str, str]
    allowed_tools: list[str] = Field(
        description="the tools that it can call, as its package writes them; empty is all that the agent can call"
    )
    disallowed_tools: list[str] = Field(description="tools that it cannot call")
    scripts: bool = Field(description="whether its scripts can run")
    files: list[str] = Field(description="its files besides SKILL.md")
    version: str = Field(description="a digest of its files")
    instructions: str | None = Field(description="its text, for operators; null for others")


class SkillListAnswer(Answer):
    """Answer of `skill_list`."""

    skills: list[SkillRecord] = Field(description="by name")


class SkillShowAnswer(Answer):
    """Answer of `skill_show`."""

    skill: SkillDetails


# --- calls ------------------------------------------------------------------------------------------------------------


@operation("List skills", "The skills that the agent can run, by name, each with where it is from.")
async def skill_list(call: Call[WorkspaceArguments], agent: WorldAgent) -> SkillListAnswer:
    """Return the skills that the agent can run."""
    return SkillListAnswer(skills=[SkillRecord(**_listed(entry, header)) for entry, header in _usable(agent)])


@operation(
    "Show a skill", "One skill: what its package says of it, its version, its files and the tools that it can call."
)
async def skill_show(call: Call[SkillShowArguments], agent: WorldAgent) -> SkillShowAnswer:
    """Return one skill.

    Raises:
        UnknownSkill: The agent has no skill of this name.
        SkillInvalid: Its package cannot be used any more.
    """
    wanted, usable = call.given.skill, _usable(agent)
    found = next((entry for entry, _ in usable if entry.name == wanted), None)
    if found is None:
        names = [entry.name for entry, _ in usable]
        raise UnknownSkill(
            f"there is no skill {wanted[:100]!r}",
            remedy=f"{agent.skills.meant(wanted)}the skills are: {', '.join(names) or 'none'}",
        )
    package = await asyncio.to_thread(agent.skills.load, wanted)  # it reads all files of the package
    header = package.header
    record = SkillDetails(
        **_listed(found, header),
        license=header.license,
        compatibility=header.compatibility,
        metadata=dict(header.metadata),
        allowed_tools=list(header.allowed_tools),
        disallowed_tools=list(header.disallowed_tools),
        scripts=package.scripts,
        files=list(package.files),
        version=package.version,
        instructions=package.instructions if call.caller.grant.operator else None,
    )
    return SkillShowAnswer(skill=record)


def _usable(agent: WorldAgent) -> list[tuple[SkillEntry, SkillHeader]]:
    return [(entry, entry.header) for entry in agent.skills.entries if entry.used and entry.header is not None]


def _listed(entry: SkillEntry, header: SkillHeader) -> dict[str, Any]:
    return {
        "name": header.name,
        "description": header.description,
        "level": entry.level,
        "argument_hint": header.argument_hint,
        "started_by": list(header.started_by),
    }
