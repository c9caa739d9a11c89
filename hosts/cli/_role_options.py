"""The options of `roles` and `role-host`; the rest of `_options`, and as light."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .options import WORKSPACE, AllowRemote, HostOptions, Http, JsonResult, Stdio

_STORED, _WHERE = "Stored roles", "Where"
_WHICH, _REACH = "Which", "How it is reached"


@dataclass(frozen=True, kw_only=True)
class RolesOptions(HostOptions):
    """What `roles list`, `roles get` and `roles delete` take."""

    tier: Annotated[
        str | None,
        typer.Option(
            metavar="workspace|account|channel",
            help="Which tier. Left out, it is that of --account or --channel, else workspace; for list, all of them.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    workspace: Annotated[str, typer.Option(metavar="ID", help="The workspace.", rich_help_panel=_WHICH)] = WORKSPACE
    account: Annotated[str | None, typer.Option(metavar="ID", help="The account.", rich_help_panel=_WHICH)] = None
    channel: Annotated[str | None, typer.Option(metavar="ID", help="The channel.", rich_help_panel=_WHICH)] = None
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the embedded store. Default: the setting home, else the user's data folder.",
            rich_help_panel=_STORED,
        ),
    ] = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class RolesPutOptions(RolesOptions):
    """What `roles put` takes."""

    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|@FILE|-",
            help="The role. @FILE reads a file, - reads standard input, @@ begins a text with a single @.",
        ),
    ]
    name: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="What people call it. Default: its tier.", rich_help_panel=_WHICH),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RoleHostOptions:
    """What `role-host` takes."""

    stdio: Stdio = False
    http: Http = None
    allow_remote: AllowRemote = False
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token that callers over HTTP must have, or, as .toml, several with their scopes. Left out, the "
            "token is in WORLDAGENT_ROLE_HOST_TOKEN.",
            rich_help_panel=_REACH,
        ),
    ] = None
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="A workspace that callers may use; * is any. Repeatable. Where any scope is named, "
            "all others are refused.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    account: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="An account that callers may use; * is any. Repeatable.", rich_help_panel=_WHICH
        ),
    ] = None
    channel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="A channel that callers may use; * is any. Repeatable.", rich_help_panel=_WHICH
        ),
    ] = None
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keeps the roles in the embedded store there. Default: the setting home, else the user's data folder.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    store: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keeps the roles in this file instead.", rich_help_panel=_WHERE),
    ] = None


__all__ = ["RoleHostOptions", "RolesOptions", "RolesPutOptions"]
