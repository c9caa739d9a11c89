"""The options of `models`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from .options import JsonResult


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """What `models` takes."""

    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Model strings, or names from the setting models: what they can do. Left out, the providers, and what "
            "their examples and the models of the settings can do.",
        ),
    ] = None
    json: JsonResult = False


__all__ = ["ModelsOptions"]
