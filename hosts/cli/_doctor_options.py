"""The options of `doctor`. As in `_options`, nothing heavy may be imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .options import HostOptions

_HOST, _INSTALLATION, _OUTPUT = "For a role host", "For this installation", "Output"


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(HostOptions):
    """What `doctor` takes."""

    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Put and delete roles too, in scopes of the check's own, which are cleared.",
            rich_help_panel=_HOST,
        ),
    ] = False
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIER=ID",
            help="A scope that may be used, where the token does not reach every one. With --write it must have no "
            "role. Repeatable, once for a tier.",
            rich_help_panel=_HOST,
        ),
    ] = None
    foreign_scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIER=ID",
            help="A scope that the token must not reach; it is only read. Repeatable, once for a tier.",
            rich_help_panel=_HOST,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="How long one call may take. Default: 10 for a role host, 60 for the model."
        ),
    ] = None
    model: Annotated[
        bool,
        typer.Option(
            "--model", help="Ask the model one tiny question; a service may charge it.", rich_help_panel=_INSTALLATION
        ),
    ] = False
    lm: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model. Default: the setting lm (WORLDAGENT_LM), else local.",
            rich_help_panel=_INSTALLATION,
        ),
    ] = None
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the databases. Default: the setting home, else the user's data folder.",
            rich_help_panel=_INSTALLATION,
        ),
    ] = None
    rekey: Annotated[
        bool,
        typer.Option(
            "--rekey",
            help="Make a new role.key after the old one was lost, and tell which turns were noted with another.",
            rich_help_panel=_INSTALLATION,
        ),
    ] = False
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="With --rekey: replace a key that is there, unasked.", rich_help_panel=_INSTALLATION
        ),
    ] = False
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: whether all is well, and the points.", rich_help_panel=_OUTPUT
        ),
    ] = False


__all__ = ["DoctorOptions"]
