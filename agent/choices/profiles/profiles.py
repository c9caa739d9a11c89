"""Applies a profile to one agent: its tools, its instructions, its limits. `profiles` reads the profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....core.errors import InvalidArgument, ProfileInvalid
from ....graphs import SUBAGENT, GraphOptions, Shape
from ....harness import Function, Registry, Worker
from ....mcp_client.tools import McpServer, check_prefixes
from ....profiles import Profile, Profiles, check_tools, compose
from ....tools import BUILTIN, BuiltinTools
from ..kinds import mcp_servers

if TYPE_CHECKING:
    from ...settings import Settings

CHARACTERS: Final = 4
"""Characters that count as one token if no tokenizer is available (004's `compression_threshold`)."""


def chosen_profile(given: str | Profile | None, settings: Settings) -> Profile:
    """Return the profile that an agent starts with: the given one, else that of the settings, else `general`.

    Raises:
        ProfileInvalid: No profile has this name, or its file is invalid.
        MissingExtra: It is in a file, and the extra `yaml` is not installed.
    """
    if isinstance(given, Profile):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidArgument(
            f"`profile` must be a name or a Profile, got {type(given).__name__!r}",
            remedy="pass the name of a profile, or a Profile",
        )
    name = given if given is not None else settings.profile
    return Profiles.open(user=settings.profiles).get(name)


def allowed_tools(given: BuiltinTools | None, settings: Settings) -> BuiltinTools:
    """Return what the built-in tools can access: `given`, else the settings."""
    if given is not None:
        return given
    search = None
    if settings.tool_search:
        from ....tools.web import LocalIndex  # loads modules that most agents do not need

        search = LocalIndex(settings.tool_search)
    roots = tuple(root.expanduser() for root in settings.tool_roots)
    return BuiltinTools(
        roots=roots,
        search=search,
        shell=settings.tool_shell,
        web=settings.tool_web,
        allow_private=settings.tool_private,
    )


def registry_of(
    functions: Iterable[Function],
    workers: Iterable[Worker | Function],
    profile: Profile,
    allowed: BuiltinTools,
    *,
    home: Path,
) -> Registry:
    """Return the registry of an agent: its own callables, and the built-in tools that the profile and the agent allow.

    Args:
        functions: The agent's functions.
        workers: Its workers.
        profile: Its profile.
        allowed: What the built-in tools can access.
        home: The agent's home, which the built-in tools cannot access.

    Raises:
        InvalidArgument: A root of the built-in tools is in the home.
        ProfileInvalid: The profile names a tool that the agent does not allow, or exceeds one of its limits.
        NameTaken, FunctionInvalid: See `Registry`.
    """
    functions, workers = tuple(functions), tuple(workers)
    own = {getattr(each, "name", None) for each in (*functions, *workers)}
    wanted = allowed.usable if profile.tools is None else profile.tools
    names = [name for name in wanted if name not in own]
    for name in profile.tools or ():
        if name in BUILTIN and name not in own and not allowed.allows(name):
            raise _beyond(profile, "tools", f"the agent does not let its profiles use the tool {name!r}")
    for tool, settings in profile.tool_settings.items():
        for key, most in (("timeout", allowed.timeouts), ("output_limit", allowed.output_limits)):
            if tool in most and settings.get(key, 0) > most[tool]:
                problem = f"{key} of {tool!r} must be at most {most[tool]:.15g}, got {settings[key]:.15g}"
                raise _beyond(profile, f"tool_settings.{tool}.{key}", problem)
    made = allowed.named(names, profile.tool_settings, home=home)
    return Registry(
        (*functions, *(each for each in made if isinstance(each, Function))),
        (*workers, *(each for each in made if isinstance(each, Worker))),
        allow=profile.tools,
    )


def check_profile(
    profile: Profile,
    registry: Registry,
    shapes: Iterable[Shape[Any, Any]],
    servers: Mapping[str, McpServer],
    allowed: BuiltinTools,
) -> None:
    """Refuse a profile that names a tool which the agent cannot have.

    Raises:
        ProfileInvalid: It names one; the text says file and line.
    """
    if profile.tools is None:
        return
    names = [*(function.name for function in registry.declared), *(shape.key for shape in shapes), SUBAGENT]
    known = dict.fromkeys([*names, *(name for name in BUILTIN if allowed.allows(name))])
    check_tools(profile, known, [server.prefix_as(name) for name, server in servers.items()])


def servers_of(profile: Profile, settings: Settings, given: object) -> dict[str, McpServer]:
    """Return the MCP servers of an agent: those given override the settings', which override the profile's.

    Args:
        profile: Its servers require approval for each call, whatever risk it declares for them.
        settings: The settings.
        given: The given servers, by name.

    Raises:
        InvalidArgument: `given` is not a mapping of servers.
        NameTaken: Tools of two servers could get the same name.
    """
    own = {name: replace(entry.server(), approval=True) for name, entry in profile.mcp_servers.items()}
    servers = own | {name: entry.server() for name, entry in settings.mcp_servers.items()} | mcp_servers(given)
    check_prefixes(servers)
    return servers


def prompt_of(profile: Profile, registry: Registry, allowed: BuiltinTools) -> str | None:
    """Return what follows the identity in the conversation's instructions, or None (P2)."""
    return compose(profile, registry.names, allowed.roots)


def bounded(options: GraphOptions, profile: Profile) -> GraphOptions:
    """Return the limits of turns with a profile's values."""
    memory, verification = profile.memory, profile.verification
    changes: dict[str, Any] = {"kept_stay": memory.long_term_memory}
    if memory.short_term_size is not None:
        changes["history_limit"] = memory.short_term_size
    if memory.compression_threshold is not None:
        wanted = memory.compression_threshold * CHARACTERS
        changes["history_characters"] = min(wanted, options.history_characters or wanted)
    if memory.compression_ratio is not None:
        changes["summary_part"] = memory.compression_ratio
    if memory.strategy is not None:
        changes["summaries"] = memory.strategy != "sliding_window"
        changes["results_stay"] = memory.strategy == "selective"
    if verification.enabled:
        changes["verifications"] = verification.max_iterations
    return replace(options, **changes)


def check_skills(profile: Profile) -> None:
    """Refuse a skill if the profile switches skills off.

    Raises:
        InvalidArgument: The profile does.
    """
    if not profile.skills.enabled:
        raise InvalidArgument(
            f"the profile {profile.name!r} switches skills off",
            remedy="start the agent with a profile that has skills, or run the skill's shape as a task",
        )


def _beyond(profile: Profile, key: str, problem: str) -> ProfileInvalid:
    where = profile.sources.get(key, f"the profile {profile.name!r}")
    return ProfileInvalid(
        f"{where}: {problem}",
        remedy="lower it in the profile, or allow it with WorldAgent(builtin_tools=BuiltinTools(...))",
    )


__all__ = [
    "allowed_tools",
    "bounded",
    "check_profile",
    "check_skills",
    "chosen_profile",
    "prompt_of",
    "registry_of",
    "servers_of",
]
