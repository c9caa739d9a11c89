"""What one file says, and what files come to of which one extends the next (P6). Nothing here reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ..core.errors import ProfileInvalid
from ..core.generation import GenerationOptions
from .profile import MemoryOverrides, Profile, Skills, Verification

DEFAULT: Final = "default"
"""Where a setting is from that no file gives."""

_PARTS: Final[Mapping[str, type]] = {"memory": MemoryOverrides, "skills": Skills, "verification": Verification}
_PLAIN: Final = ("description", "system_prompt", "tools", "sections", "agents_md")

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a file says about one thing.

    Attributes:
        value: What it says.
        where: File and line.
        items: File and line of each item, where it is a list.
    """

    value: Any = field(repr=False)
    where: str
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """What one file says.

    Attributes:
        path: The file.
        name: What the profile is called; where the file does not say it, the file's own name.
        where: File and line of the name.
        extends: The name of the profile that it takes the rest from.
        extends_at: File and line of that.
        settings: What it gives.
        problems: What is wrong in it, by line; where there is something, no setting counts.
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
        chain: Its file, the one that this extends, and so on. What one does not give is the next one's matter, key by
            key: `tools` count as a whole, settings of tools and servers one by one.
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


__all__ = ["DEFAULT", "Key", "ProfileFile", "Setting", "effective"]
