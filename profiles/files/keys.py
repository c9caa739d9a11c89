"""The keys of a profile's file, once: files are read by these models, and the schema for editors is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ...core.generation import GenerationOptions
from ...mcp_client.tools import McpEntry
from ..profile import Sections, Strategy

VERSION: Final = 1
NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
"""What a profile may be called."""

NOT_BLANK: Final = r"\S"


_Name = Annotated[str, Field(pattern=NAME)]


class Part(BaseModel):
    """A mapping in which no key but its own may stand, and each value is of its kind."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class MemoryKeys(Part):
    """How much of a thread the model sees. What is null is left to the settings."""

    short_term_size: int | None = Field(None, ge=1, le=1000, description="Messages of the log that the model sees")
    compression_threshold: int | None = Field(
        None, ge=1, le=100_000_000, description="Tokens of them from which on older ones are compressed"
    )
    compression_ratio: float | None = Field(
        None, gt=0, le=1, description="How long a summary may be, as a part of what it stands for"
    )
    strategy: Strategy | None = Field(None, description="What becomes of older messages; null chooses by the model")
    long_term_memory: bool = Field(True, description="Whether messages that are marked as kept stay, however old")


class SkillsKeys(Part):
    """Whether skills may run."""

    enabled: bool = Field(True, description="Whether they may")


class VerificationKeys(Part):
    """Whether an answer is checked before it counts."""

    enabled: bool = Field(True, description="Whether it is")
    max_iterations: int = Field(3, ge=1, le=10, description="How often it may be found wanting, and given anew")


_Output = Annotated[
    int, Field(default=None, ge=1_000, le=10_000_000, description="Characters of a result; what is more is cut")
]
_Timeout = Annotated[float, Field(default=None, gt=0, le=86_400, description="Seconds that one call may take")]


class CutKeys(Part):
    """Settings of a tool whose result may be long."""

    output_limit: _Output


class TimedKeys(Part):
    """Settings of a tool that may take long."""

    timeout: _Timeout


class BothKeys(CutKeys, TimedKeys):
    """Settings of a tool that may take long, with a result that may be."""


class ToolKeys(Part):
    """Settings of the tools that ship: those that each one has."""

    read_file: CutKeys | None = None
    glob_files: CutKeys | None = None
    grep_content: CutKeys | None = None
    shell: BothKeys | None = None
    web_search: TimedKeys | None = None
    web_fetch: BothKeys | None = None


class ProfileKeys(Part):
    """What an agent starts up with: persona, tools, memory."""

    profile: int = Field(VERSION, ge=VERSION, le=VERSION, description="The version of the file's form")
    name: _Name = Field("", validate_default=False, description="What it is called; left out, as the file is")
    description: str = Field("", description="What it is for, for whoever chooses one")
    extends: _Name = Field(
        "",
        validate_default=False,
        description="The profile that what is not given here comes from; its own name is the one that it overrides",
    )
    system_prompt: str | None = Field(
        None, min_length=1, pattern=NOT_BLANK, description="What stands after the agent's identity"
    )
    tools: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, description="Names and globs of all that the agent can call; null is what it has without a profile"
    )
    sections: Sections = Field(
        "auto", description="Which sections of instructions there are; all adds those for demanding work"
    )
    agents_md: bool = Field(True, description="Whether the instructions tell of AGENTS.md files")
    memory: MemoryKeys | None = None
    skills: SkillsKeys | None = None
    verification: VerificationKeys | None = None
    options: GenerationOptions | None = None
    tool_settings: ToolKeys | None = None
    mcp_servers: dict[Annotated[str, Field(min_length=1)], McpEntry] | None = Field(
        None, description="MCP servers whose tools can be called, by name, as in the settings"
    )


# What a server's constructors refuse beside what its model does.
_ENTRY: Final[Mapping[str, Mapping[str, Any]]] = {
    "command": {"minLength": 1},
    "url": {"pattern": r"^https?://[^\s/?#@]+([/?#]\S*)?$"},
    "prefix": {"pattern": r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$"},
}


def profile_schema() -> dict[str, Any]:
    """The JSON Schema of a profile's file, for editors. What it takes is what is read."""
    schema = ProfileKeys.model_json_schema()
    entry = schema["$defs"]["McpEntry"]
    for key, more in _ENTRY.items():
        entry["properties"][key]["anyOf"][0] |= more
    entry["properties"]["allow"]["items"]["minLength"] = 1
    entry["oneOf"] = [{"required": [key], "properties": {key: {"type": "string"}}} for key in ("command", "url")]
    entry["description"] = "A program by `command`, or an address by `url`"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "worldagent profile"}
    return {**head, **_without_noise(schema)}


def _without_noise(schema: Any) -> Any:
    """A schema without the titles that the keys say already, and without defaults that are none."""
    if isinstance(schema, list):
        return [_without_noise(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} | ({"default"} if schema.get("default") in (None, "") else set())
    return {key: _without_noise(each) for key, each in schema.items() if key not in noise}


__all__ = ["NAME", "NOT_BLANK", "VERSION", "ProfileKeys", "profile_schema"]
