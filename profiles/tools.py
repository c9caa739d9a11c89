"""Checks that the tools of a profile exist (P1). The caller passes the names of the existing tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from ..core.errors import ProfileInvalid
from .near import near
from .profile import Profile

_GLOB: Final = frozenset("*?[")
MAX_SHOWN_CHARACTERS: Final = 80
MAX_PROBLEMS: Final = 20  # the most problems that are reported


def check_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> None:
    """Refuse a tool that does not exist. A glob can match nothing, because its tools may be added later.

    Args:
        profile: The profile.
        known: The names of all existing tools.
        prefixes: The prefixes of the names of MCP servers' tools. The prefixes of the profile's own servers are added.

    Raises:
        ProfileInvalid: The profile names an unknown tool; the text has the line and a similar name.
    """
    for problem in unknown_tools(profile, known, prefixes):
        raise problem


def unknown_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> Sequence[ProfileInvalid]:
    """The errors of `check_tools` for all unknown tools."""
    names = tuple(known)
    beginnings = (*prefixes, *(entry.server().prefix_as(name) for name, entry in profile.mcp_servers.items()))
    found = (
        ProfileInvalid(
            f"{_where(profile, place)}: there is no tool {name[:MAX_SHOWN_CHARACTERS]!r}",
            remedy=f"{near(name, names)}the tools are: {', '.join(names)}",
        )
        for place, name in enumerate(profile.tools or ())
        if not (_GLOB.intersection(name) or name in names or name.startswith(beginnings))
    )
    return list(islice(found, MAX_PROBLEMS))


def _where(profile: Profile, place: int) -> str:
    return profile.sources.get(f"tools.{place}", f"the profile {profile.name!r}")


__all__ = ["check_tools", "unknown_tools"]
