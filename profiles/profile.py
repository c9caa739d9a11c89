"""A profile as data: what an agent starts with (004). `catalogue` finds and reads profiles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from ..core.errors import ProfileInvalid
from ..core.generation import GenerationOptions


def near(name: object, known: Iterable[str]) -> str:
    """The begin of a remedy, "did you mean ...", if a known name is similar; otherwise an empty text."""
    wanted, names = str(name), list(known)
    # A name that is a prefix of the other is closer than one with similar letters: explore for explore_context.
    shared = [each for each in names if wanted.startswith(each) or each.startswith(wanted)]
    close = sorted(shared, key=lambda each: abs(len(each) - len(wanted))) or difflib.get_close_matches(wanted, names, 1)
    return f"did you mean {close[0]!r}? " if close else ""


Strategy = Literal["sliding_window", "summary", "selective"]
Sections = Literal["auto", "all"]

GENERAL: Final = "general"
"""The profile that changes nothing (P3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOverrides:
    """A profile's settings for how much of a thread the model sees; None means the value of the agent's settings.

    Attributes:
        short_term_size: How many messages of the log the model sees, 1 to 1000.
        compression_threshold: Tokens of messages above which older ones are compressed. A token counts as 4 characters.
        compression_ratio: The longest summary, as a fraction of the text that it replaces, above 0 and at most 1.
        strategy: What happens to older messages. `sliding_window` leaves them out. `summary` replaces them with one
            summary. `selective` does too, but keeps results of tasks word for word. None chooses by the model.
        long_term_memory: Whether messages that a person marked as kept stay word for word, however old.
    """

    short_term_size: int | None = None
    compression_threshold: int | None = None
    compression_ratio: float | None = None
    strategy: Strategy | None = None
    long_term_memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """Whether skills can run.

    Attributes:
        enabled: Whether skills can run.
    """

    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether an answer is checked before it is final.

    Attributes:
        enabled: Whether answers are checked.
        max_iterations: How often an answer can be rejected and written again, 1 to 10.
    """

    enabled: bool = True
    max_iterations: int = 3


@dataclass(frozen=True, slots=True)
class Profile:
    """What an agent starts with.

    Attributes:
        name: 1 to 64 letters, digits, `_` and `-`.
        description: What it is for, shown in lists.
        system_prompt: The text after the identity in the conversation's instructions; None adds nothing.
        tools: Names and globs of the tools that the agent can call. A glob does not match built-in tools. None means
            all tools that the agent has, and the built-in tools that have something to work on.
        sections: Which sections the instructions have. `auto` adds those of every profile with a `system_prompt`, and
            `all` also those for demanding work. A section about a tool is added only if the agent has that tool.
        agents_md: Whether the instructions mention AGENTS.md files.
        memory: How much of a thread the model sees.
        skills: Whether skills can run.
        verification: Whether answers are checked.
        options: How models generate their answers. These options override the setting `model_options`.
        tool_settings: Settings of single tools by name, within the limits of the agent.
        mcp_servers: MCP servers by name, in the form of the setting `mcp_servers`.
        sources: The source of each effective setting, by its dotted key: a file and line, or `default`.
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


DEFAULT: Final = "default"
"""The source of a setting that no file sets."""

_PARTS: Final[Mapping[str, type]] = {"memory": MemoryOverrides, "skills": Skills, "verification": Verification}
_PLAIN: Final = ("description", "system_prompt", "tools", "sections", "agents_md")

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting in a file.

    Attributes:
        value: The value.
        where: File and line.
        items: File and line of each item, if the value is a list.
    """

    value: Any = field(repr=False)
    where: str
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """The content of one file.

    Attributes:
        path: The file.
        name: The profile's name. If the file does not set one, it is the file's name.
        where: File and line of the name.
        extends: The name of the profile that it extends.
        extends_at: File and line of `extends`.
        settings: The settings that it sets.
        problems: The problems in the file, by line. If there are any, no setting is used.
    """

    path: Path
    name: str
    where: str = ""
    extends: str | None = None
    extends_at: str = ""
    settings: Mapping[Key, Setting] = field(default_factory=dict, repr=False)
    problems: tuple[ProfileInvalid, ...] = ()


def effective(chain: Sequence[ProfileFile]) -> Profile:
    """Make the profile.

    Args:
        chain: Its file, the file that this one extends, and so on. A key that a file does not set comes from the next
            file. `tools` is one key; each setting of a tool and each server is a separate key.
    """
    given: dict[Key, Setting] = {}
    for file in reversed(chain):
        given |= file.settings
    values: dict[str, Any] = {"tool_settings": {}, "mcp_servers": {}}
    for key, setting in given.items():
        match key:
            case ("tool_settings", tool, what):
                values["tool_settings"].setdefault(tool, {})[what] = setting.value
            case ("mcp_servers", name):
                values["mcp_servers"][name] = setting.value
            case _:
                pass
    values |= {key: given[(key,)].value for key in _PLAIN if (key,) in given}
    values |= {name: kind(**_under(given, name)) for name, kind in _PARTS.items()}
    values["options"] = GenerationOptions(**_under(given, "options"))
    return Profile(chain[0].name, **values, sources=_sources(chain[0], given))


def _under(given: Mapping[Key, Setting], name: str) -> dict[str, Any]:
    return {key[1]: setting.value for key, setting in given.items() if key[0] == name}


def _sources(file: ProfileFile, given: Mapping[Key, Setting]) -> dict[str, str]:
    sources = {"name": file.where, **dict.fromkeys(_PLAIN, DEFAULT)}
    for name, kind in _PARTS.items():
        sources |= {f"{name}.{part.name}": DEFAULT for part in fields(kind)}
    sources |= {f"options.{name}": DEFAULT for name in GenerationOptions.model_fields}
    for key, setting in sorted(given.items()):
        sources[".".join(key)] = setting.where
        sources |= {f"{'.'.join(key)}.{place}": where for place, where in enumerate(setting.items)}
    return sources
