"""A profile as data: what an agent starts up with (004). Where one is read from is `catalogue`'s matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

from ..core.generation import GenerationOptions

Strategy = Literal["sliding_window", "summary", "selective"]
Sections = Literal["auto", "all"]

GENERAL: Final = "general"
"""The profile that changes nothing (P3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOverrides:
    """What a profile says about how much of a thread the model sees; None leaves it to the settings.

    Attributes:
        short_term_size: Messages of the log that the model sees, 1 to 1000.
        compression_threshold: Tokens of them from which on older ones are compressed; a token counts as 4 characters.
        compression_ratio: How long a summary may be, as a part of what it stands for, above 0 and at most 1.
        strategy: What becomes of older messages: `sliding_window` leaves them out, `summary` has one summary stand for
            them, `selective` has one too, beside which results of tasks stay word for word. None chooses by the model.
        long_term_memory: Whether messages that a person marked as kept stay word for word, however old.
    """

    short_term_size: int | None = None
    compression_threshold: int | None = None
    compression_ratio: float | None = None
    strategy: Strategy | None = None
    long_term_memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """Whether skills may run.

    Attributes:
        enabled: Whether they may.
    """

    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether an answer is checked before it counts.

    Attributes:
        enabled: Whether it is.
        max_iterations: How often it may be found wanting, and given anew, 1 to 10.
    """

    enabled: bool = True
    max_iterations: int = 3


@dataclass(frozen=True, slots=True)
class Profile:
    """What an agent starts up with.

    Attributes:
        name: 1 to 64 letters, digits, `_` and `-`.
        description: What it is for, for whoever chooses one.
        system_prompt: What stands after the identity in the conversation's instructions; None changes nothing there.
        tools: Names and globs of what the agent can call; a glob brings in no tool that ships. None is all that the
            agent has, and the tools that ship which have something to work on.
        sections: Which sections its instructions have: `auto` is those that belong to every profile with a
            `system_prompt`, `all` also those for demanding work. A section about a tool is there only with that tool.
        agents_md: Whether the instructions mention AGENTS.md files.
        memory: How much of a thread the model sees.
        skills: Whether skills may run.
        verification: Whether answers are checked.
        options: How models generate their answers; they go over the setting `model_options`.
        tool_settings: Settings of single tools by their names, within what the agent allows.
        mcp_servers: MCP servers by name, as the setting `mcp_servers` has them.
        sources: Where each effective setting is from, by its dotted key: a file and line, or `default`.
    """

    name: str
    _: KW_ONLY
    description: str = ""
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    sections: Sections = "auto"
    agents_md: bool = True
    memory: MemoryOverrides = field(default_factory=MemoryOverrides)
    skills: Skills = field(default_factory=Skills)
    verification: Verification = field(default_factory=Verification)
    options: GenerationOptions = field(default_factory=GenerationOptions)
    tool_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mcp_servers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


__all__ = ["GENERAL", "MemoryOverrides", "Profile", "Sections", "Skills", "Strategy", "Verification"]
