"""The keys of a profile's file. These models read files, and the schema for editors is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ...core.generation import GenerationOptions
from ...mcp_client.tools import McpEntry
from ..profile import Sections, Strategy

VERSION: Final = 1
NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
"""The pattern of a profile's name."""

NOT_BLANK: Final = r"\S"


_Name = Annotated[str, Field(pattern=NAME)]


class Part(BaseModel):
    """A mapping that accepts only its declared keys, and only values of their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class MemoryKeys(Part):
    """How much of a thread the model sees. A key that is null has the value of the settings."""

    short_term_size: int | None = Field(None, ge=1, le=1000, description="Messages of the log that the model sees")
    compression_threshold: int | None = Field(
        None, ge=1, le=100_000_000, description="Tokens of messages above which older ones are compressed"
    )
    compression_ratio: float | None = Field(
        None, gt=0, le=1, description="The longest summary, as a fraction of the text that it replaces"
    )
    strategy: Strategy | None = Field(None, description="What happens to older messages; null chooses by the model")
    long_term_memory: bool = Field(True, description="Whether messages that are marked as kept stay, however old")


class SkillsKeys(Part):
    """Whether skills can run."""

    enabled: bool = Field(True, description="Whether skills can run")


class VerificationKeys(Part):
    """Whether an answer is checked before it is final."""

    enabled: bool = Field(True, description="Whether answers are checked")
    max_iterations: int = Field(3, ge=1, le=10, description="How often an answer can be rejected and written again")


_Output = Annotated[
    int, Field(default=None, ge=1_000, le=10_000_000, description="Characters of a result; a longer one is cut")
]
_Timeout = Annotated[float, Field(default=None, gt=0, le=86_400, description="The most seconds that one call can take")]


class CutKeys(Part):
    """Settings of a tool whose result can be long."""

    output_limit: _Output


class TimedKeys(Part):
    """Settings of a tool that can take long."""

    timeout: _Timeout


class BothKeys(CutKeys, TimedKeys):
    """Settings of a tool that can take long and whose result can be long."""


class ToolKeys(Part):
    """Settings of the built-in tools. Each tool has only some of them."""

    read_file: CutKeys | None = None
    glob_files: CutKeys | None = None
    grep_content: CutKeys | None = None
    shell: BothKeys | None = None
    web_search: TimedKeys | None = None
    web_fetch: BothKeys | None = None


class ProfileKeys(Part):
    """The persona, tools and memory settings that an agent starts with."""

    profile: int = Field(VERSION, ge=VERSION, le=VERSION, description="The version of the file format")
    name: _Name = Field("", validate_default=False, description="The profile's name; by default the file's name")
    description: str = Field("", description="What the profile is for, shown in lists")
    extends: _Name = Field(
        "",
        validate_default=False,
        description="The profile that supplies the keys not set here; its own name means the one that it overrides",
    )
    system_prompt: str | None = Field(
        None, min_length=1, pattern=NOT_BLANK, description="Instructions that follow the agent's identity"
    )
    tools: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, description="Names and globs of the tools that the agent can call; null is those without a profile"
    )
    sections: Sections = Field(
        "auto", description="Which sections the instructions have; all adds those for demanding work"
    )
    agents_md: bool = Field(True, description="Whether the instructions mention AGENTS.md files")
    memory: MemoryKeys | None = None
    skills: SkillsKeys | None = None
    verification: VerificationKeys | None = None
    options: GenerationOptions | None = None
    tool_settings: ToolKeys | None = None
    mcp_servers: dict[Annotated[str, Field(min_length=1)], McpEntry] | None = Field(
        None, description="MCP servers whose tools can be called, by name, as in the settings"
    )


# Rules that the constructors of a server check, but not its model.
_ENTRY: Final[Mapping[str, Mapping[str, Any]]] = {
    "command": {"minLength": 1},
    "url": {"pattern": r"^https?://[^\s/?#@]+([/?#]\S*)?$"},
    "prefix": {"pattern": r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$"},
}


def profile_schema() -> dict[str, Any]:
    """The JSON Schema of a profile's file, for editors. It accepts exactly the files that can be read."""
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
    """Remove titles, which only repeat the keys, and empty defaults from a schema."""
    if isinstance(schema, list):
        return [_without_noise(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} | ({"default"} if schema.get("default") in (None, "") else set())
    return {key: _without_noise(each) for key, each in schema.items() if key not in noise}


__all__ = ["NAME", "NOT_BLANK", "VERSION", "ProfileKeys", "profile_schema"]
