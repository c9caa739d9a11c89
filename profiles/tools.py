"""Whether a profile names tools that there are (P1). What there is, the caller knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from ..core.errors import ProfileInvalid
from .near import near
from .profile import Profile

_GLOB: Final = frozenset("*?[")
_SHOWN: Final = 80
_MOST: Final = 20  # that are told


def check_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> None:
    """Refuse a tool that there is not. A glob may match nothing: what it is for may come later.

    Args:
        profile: The profile.
        known: The names of all tools that there are.
        prefixes: What the names of the tools of MCP servers begin with; those of the profile's own servers need not be
            among them.

    Raises:
        ProfileInvalid: The profile names another one; the text says in which line, and what may have been meant.
    """
    for problem in unknown_tools(profile, known, prefixes):
        raise problem


def unknown_tools(profile: Profile, known: Iterable[str], prefixes: Iterable[str] = ()) -> Sequence[ProfileInvalid]:
    """What `check_tools` says of each tool that there is not."""
    names = tuple(known)
    beginnings = (*prefixes, *(entry.server().prefix_as(name) for name, entry in profile.mcp_servers.items()))
    found = (
        ProfileInvalid(
            f"{_where(profile, place)}: there is no tool {name[:_SHOWN]!r}",
            remedy=f"{near(name, names)}the tools are: {', '.join(names)}",
        )
        for place, name in enumerate(profile.tools or ())
        if not (_GLOB.intersection(name) or name in names or name.startswith(beginnings))
    )
    return list(islice(found, _MOST))


def _where(profile: Profile, place: int) -> str:
    return profile.sources.get(f"tools.{place}", f"the profile {profile.name!r}")


__all__ = ["check_tools", "unknown_tools"]
