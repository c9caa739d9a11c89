"""The settings of one file, and the profile that results from files that extend each other (P6). It reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ..core.errors import ProfileInvalid
from ..core.generation import GenerationOptions
from .profile import MemoryOverrides, Profile, Skills, Verification

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


__all__ = ["DEFAULT", "Key", "ProfileFile", "Setting", "effective"]
