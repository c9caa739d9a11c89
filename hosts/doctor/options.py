"""What the check of an installation is about, and what its points share. Nothing is looked at here but settings."""

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
    """What is checked.

    Attributes:
        home: The folder of the databases; None is where the settings say.
        lm: The model; None is what the settings say, else the embedded one.
        call_model: Whether the model is asked one tiny question; a hosted one may charge for it.
        timeout: Seconds that the model may take, and the role host at most.
    """

    home: Path | None = None
    lm: str | None = None
    call_model: bool = False
    timeout: float = 60.0


class Site:
    """One installation.

    Args:
        options: What is checked.

    Attributes:
        settings: The settings; None where they do not fit.
        storage: What stands below the home.
    """

    def __init__(self, options: InstallationOptions) -> None:
        self.options = options
        self.settings: Settings | None = None
        with contextlib.suppress(WorldAgentError):  # settings.values tells
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
        """The model string that an agent would take."""
        return self.options.lm or (self.settings.lm if self.settings else None) or "local"

    @property
    def standing(self) -> Path:
        """The home, or where it is not there yet the nearest folder above it that is."""
        return next((folder for folder in (self.home, *self.home.parents) if folder.exists()), self.home)


__all__ = ["InstallationOptions", "Site"]
