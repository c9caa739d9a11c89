"""The options of the check of an installation, and the state that its points share. Only settings are read here."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from ...agent import Settings
from ...core.errors import WorldAgentError
from ...storage import Storage


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


__all__ = ["InstallationOptions", "Site"]
