"""The options of `profiles`. As in `_options`, nothing heavy may be imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .options import JsonResult

_WHERE, _WHICH = "Where", "Which"


@dataclass(frozen=True, kw_only=True)
class ProfilesListOptions:
    """What `profiles list` takes."""

    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ProfilesShowOptions:
    """What `profiles show` takes."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="The profile, as `profiles list` tells it.")]
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ProfilesCheckOptions:
    """What `profiles check` takes."""

    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|NAME...", help="What to check. Default: every profile that there is."),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="An agent of your own: its functions, workers and shapes are known tools. It is opened for that.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ProfilesSchemaOptions:
    """What `profiles schema` takes: nothing."""


@dataclass(frozen=True, kw_only=True)
class ProfilesTrustOptions:
    """What `profiles trust` takes."""

    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A folder of the project. Default: the current one.")
    ] = None
    remove: Annotated[bool, typer.Option("--remove", help="Trust the project no more.", rich_help_panel=_WHICH)] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Trust it unasked.", rich_help_panel=_WHICH)] = False
    json: JsonResult = False


__all__ = [
    "ProfilesCheckOptions",
    "ProfilesListOptions",
    "ProfilesSchemaOptions",
    "ProfilesShowOptions",
    "ProfilesTrustOptions",
]
