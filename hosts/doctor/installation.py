"""An installation that is checked: what its points share, and the points about Python, libraries and settings."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from ...agent import Settings
from ...core.errors import WorldAgentError
from ...storage import Storage
from ...testing.role_host_conformance import Failed, Points, Skipped, Warned


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationOptions:
    """What to check.

    Attributes:
        home: The folder of the databases; None uses the settings.
        lm: The model; None uses the settings, else the embedded model.
        call_model: Whether to send the model one tiny question. A hosted model can charge for it.
        timeout: The most seconds that the model or the role host can take.
    """

    home: Path | None = None
    lm: str | None = None
    call_model: bool = False
    timeout: float = 60.0


class Site:
    """One installation.

    Args:
        options: What to check.

    Attributes:
        settings: The settings; None if they are not valid.
        storage: The places below the home.
    """

    def __init__(self, options: InstallationOptions) -> None:
        self.options = options
        self.settings: Settings | None = None
        with contextlib.suppress(WorldAgentError):  # the point settings.values reports it
            self.settings = Settings()
        named = os.environ.get("WORLDAGENT_HOME")
        fallback = Path(named) if named else None
        given = Storage(home=options.home)
        self.storage = self.settings.storage(given) if self.settings else Storage(home=options.home or fallback)

    @property
    def home(self) -> Path:
        """The folder of the databases."""
        return self.storage.resolve()

    @property
    def lm(self) -> str:
        """The model string that an agent would use."""
        return self.options.lm or (self.settings.lm if self.settings else None) or "local"

    @property
    def nearest(self) -> Path:
        """The home, or the nearest existing folder above it."""
        return next((folder for folder in (self.home, *self.home.parents) if folder.exists()), self.home)


POINTS: Final = Points()
point: Final = POINTS.add

_PACKAGE: Final = "worldagent"
MIN_PYTHON: Final = (3, 11)
REPORTED_PACKAGES: Final = ("dspy", "langgraph", "mcp", "pydantic")
_EXTRAS: Final = (
    "acp",
    "agui",
    "cli",
    "durable",
    "local",
    "memory",
    "optimise",
    "otel",
    "postgres",
    "sandbox",
    "tools",
    "web",
    "yaml",
)
_PREFIX: Final = "WORLDAGENT_"
OTHER_VARIABLES: Final = {f"{_PREFIX}SETTINGS", f"{_PREFIX}LOCAL_MODEL"}
"""Variables that are read but are not settings."""


@point("python.version", "Python is new enough")
async def python(site: Site) -> str | None:
    """The version of Python is one that the package supports."""
    if sys.version_info < MIN_PYTHON:
        raise Failed(f"Python must be 3.11 or newer, and this is {platform.python_version()}", "use 3.11 or newer")
    return f"{platform.python_version()}, {platform.system()}"


@point("package.versions", "the libraries are installed in versions that fit")
async def libraries(site: Site) -> str | None:
    """The required libraries are installed in versions that fit."""
    wrong = [shown for need in _needs("") if (shown := _version_problem(need))]
    if wrong:
        raise Failed("; ".join(wrong), f"run `pip install --upgrade {_PACKAGE}`")
    return ", ".join(f"{name} {_version(name)}" for name in (_PACKAGE, *REPORTED_PACKAGES))


@point("package.extras", "the extras are installed in full")
async def extras(site: Site) -> str | None:
    """An extra that is installed in part does not work. One that is not installed at all is not needed."""
    complete: list[str] = []
    for extra in _EXTRAS:
        needs = _needs(extra)
        missing = [shown for need in needs if (shown := _version_problem(need))]
        if needs and not missing:
            complete.append(extra)
        elif len(missing) < len(needs) or any(_version(need.name) for need in needs):
            raise Warned("; ".join(missing), f"run `pip install '{_PACKAGE}[{extra}]'`")
    return ", ".join(complete) or "none"


@point("settings.values", "the settings are valid")
async def settings(site: Site) -> str | None:
    """All values are valid, and no variable is misspelt."""
    Settings()
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    unknown = sorted(name for name in os.environ if name.startswith(_PREFIX) and name.upper() not in known)
    if unknown:
        verb = "is not a setting" if len(unknown) == 1 else "are not settings"
        raise Warned(f"{', '.join(unknown)} {verb}", "see docs/reference/settings.md")
    given = [name for name in known - OTHER_VARIABLES if os.environ.get(name)]
    return f"{len(given)} from the environment"


def _needs(extra: str) -> list[Requirement]:
    """The requirements of the package itself, or of one of its extras, that apply here."""
    try:
        given = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        given = None
    if given is None:
        raise Skipped("the package runs from a folder and is not installed", f"run `pip install {_PACKAGE}`")
    needs = [Requirement(each) for each in given]
    plain = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    if not extra:
        return plain
    return [need for need in needs if need not in plain and need.marker and need.marker.evaluate({"extra": extra})]


def _version_problem(need: Requirement) -> str:
    found = _version(need.name)
    if not found:
        return f"{need.name} is not installed"
    return "" if need.specifier.contains(found, prereleases=True) else f"{need.name} {found} is not {need.specifier}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
