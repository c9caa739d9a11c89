"""The options of `storage`. As in `_options`, nothing heavy may be imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from .options import JsonResult

_PLACES = "Places"


@dataclass(frozen=True, kw_only=True)
class StorageCopyOptions:
    """What `storage copy` takes."""

    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="What to copy. Default: the home.", rich_help_panel=_PLACES),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="PLACE", help="Where to. Default: the setting database_url.", rich_help_panel=_PLACES
        ),
    ] = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class StorageDropOptions:
    """What `storage drop` takes."""

    place: Annotated[str, typer.Argument(metavar="PLACE", help="Where the copy was going to.")]
    json: JsonResult = False


__all__ = ["StorageCopyOptions", "StorageDropOptions"]
