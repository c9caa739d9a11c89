"""What an agent's profile comes to: its tools, its instructions, its bounds. Profiles are read in `profiles`."""

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
"""Characters that count as one token where nothing counts them (004's `compression_threshold`)."""


def chosen_profile(given: str | Profile | None, settings: Settings) -> Profile:
    """The profile that an agent starts up with: the one given, else the one of the settings, else `general`.

    Raises:
        ProfileInvalid: There is none of that name, or its file does not fit.
        MissingExtra: It is in a file, and the extra `yaml` is not installed.
    """
    if isinstance(given, Profile):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidArgument(
            f"profile= is of type {type(given).__name__!r}", remedy="pass the name of a profile, or a Profile"
        )
    name = given if given is not None else settings.profile
    return Profiles.open(user=settings.profiles).get(name)


def allowed_tools(given: BuiltinTools | None, settings: Settings) -> BuiltinTools:
    """What the tools that ship may do: what is given, else what the settings say."""
    if given is not None:
        return given
    search = None
    if settings.tool_search:
        from ....tools.web import LocalIndex  # it needs what most agents do not

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
    """What an agent can call: what it has, and the tools that ship which its profile allows and which can work.

    Args:
        functions: The agent's functions.
        workers: Its workers.
        profile: Its profile.
        allowed: What the tools that ship may do.
        home: The agent's home, which is out of their reach.

    Raises:
        InvalidArgument: A root of theirs is in the home.
        ProfileInvalid: The profile names a tool that is not allowed, or wants more of one than is.
        NameTaken, FunctionInvalid: See `Registry`.
    """
    functions, workers = tuple(functions), tuple(workers)
    own = {getattr(each, "name", None) for each in (*functions, *workers)}
    wanted = allowed.usable if profile.tools is None else profile.tools
    names = [name for name in wanted if name not in own]
    for name in profile.tools or ():
        if name in BUILTIN and name not in own and not allowed.allows(name):
            raise _beyond(profile, "tools", f"the agent does not allow its profiles the tool {name!r}")
    for tool, settings in profile.tool_settings.items():
        for key, most in (("timeout", allowed.timeouts), ("output_limit", allowed.output_limits)):
            if tool in most and settings.get(key, 0) > most[tool]:
                problem = f"{key} of {tool!r} is {settings[key]:.15g}, and the agent allows {most[tool]:.15g}"
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
        ProfileInvalid: It does; the text names file and line.
    """
    if profile.tools is None:
        return
    names = [*(function.name for function in registry.declared), *(shape.key for shape in shapes), SUBAGENT]
    known = dict.fromkeys([*names, *(name for name in BUILTIN if allowed.allows(name))])
    check_tools(profile, known, [server.prefix_as(name) for name, server in servers.items()])


def servers_of(profile: Profile, settings: Settings, given: object) -> dict[str, McpServer]:
    """The MCP servers of an agent: those given over those of the settings, and these over those of the profile.

    Args:
        profile: What it says of its servers' risk, and how it calls them, is no leave: a person is asked for each call.
        settings: The settings.
        given: The servers that are given, by name.

    Raises:
        InvalidArgument: `given` is no mapping of servers.
        NameTaken: A server could give its tools the names of another's.
    """
    own = {name: replace(entry.server(), approval=True) for name, entry in profile.mcp_servers.items()}
    servers = own | {name: entry.server() for name, entry in settings.mcp_servers.items()} | mcp_servers(given)
    check_prefixes(servers)
    return servers


def prompt_of(profile: Profile, registry: Registry, allowed: BuiltinTools) -> str | None:
    """What stands after the identity in the conversation's instructions; None is nothing (P2)."""
    return compose(profile, registry.names, allowed.roots)


def bounded(options: GraphOptions, profile: Profile) -> GraphOptions:
    """The bounds of turns as a profile has them."""
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
    """Refuse a skill where the profile switches them off.

    Raises:
        InvalidArgument: It does.
    """
    if not profile.skills.enabled:
        raise InvalidArgument(
            f"the profile {profile.name!r} switches skills off",
            remedy="start the agent with a profile that has them, or run the skill's shape as a task",
        )


def _beyond(profile: Profile, key: str, problem: str) -> ProfileInvalid:
    where = profile.sources.get(key, f"the profile {profile.name!r}")
    return ProfileInvalid(
        f"{where}: {problem}",
        remedy="ask for no more, or allow it with WorldAgent(builtin_tools=BuiltinTools(...))",
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
