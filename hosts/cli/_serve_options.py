"""The options of `serve` and `ps`. As in `_options`, nothing heavy may be imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AllowRemote,
    Home,
    Http,
    Identity,
    JsonResult,
    Lm,
    Policy,
    ProfileName,
    RoleHostToken,
    Stdio,
    WorkersFolder,
    WorkerTexts,
)

_REACH, _LIMITS, _WHERE, _STORED, _LOGS = "How it is reached", "Limits", "Where", "Stored roles", "Output"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `serve` takes."""

    stdio: Stdio = False
    http: Http = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token that callers over HTTP must have, or, as .toml, several and what each may use. Left out, "
            "the token is in WORLDAGENT_SIDECAR_TOKEN.",
            rich_help_panel=_REACH,
        ),
    ] = None
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="A workspace that is served; * is any. Repeatable. Default: those that the tokens name, else default.",
            rich_help_panel=_REACH,
        ),
    ] = None
    allow_remote: AllowRemote = False
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate, with its chain, as PEM.", rich_help_panel=_REACH),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, as PEM.", rich_help_panel=_REACH)
    ] = None
    server_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name under which other machines reach it, beside its address and the names of loopback; requests "
            "for another one are refused. Repeatable. Default: any; where it listens on loopback, no other.",
            rich_help_panel=_REACH,
        ),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Agents of your own, with their functions and shapes: a function that takes a workspace's id and "
            "makes its WorldAgent, or a WorldAgent, of one workspace. Modules of the current folder can be named.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    home: Home = None
    policy: Policy = None
    lm: Lm = None
    identity: Identity = None
    profile: ProfileName = None
    worker: WorkerTexts = None
    workers: WorkersFolder = None
    role_host: Annotated[
        str | None,
        typer.Option(
            metavar="URL|embedded",
            help="The role host that keeps them, or the embedded store. Default: the setting role_host, else embedded. "
            "The token comes from WORLDAGENT_ROLE_HOST_TOKEN or --role-host-token-file.",
            rich_help_panel=_STORED,
        ),
    ] = None
    role_host_stdio: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="A role host that is a program, such as 'my-host --stdio'.", rich_help_panel=_STORED
        ),
    ] = None
    role_host_token_file: RoleHostToken = None
    turns: Annotated[
        int,
        typer.Option(metavar="N", help="Turns of one workspace at once; more are refused.", rich_help_panel=_LIMITS),
    ] = 1000
    workspaces: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Workspaces whose agents are open at once; idle ones are closed.",
            rich_help_panel=_LIMITS,
        ),
    ] = 64
    drain: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long turns have to come to their next step at SIGTERM; what is not there is broken off.",
            rich_help_panel=_LIMITS,
        ),
    ] = 5.0
    log_format: Annotated[
        str,
        typer.Option(metavar="text|json", help="How each request is told on stderr.", rich_help_panel=_LOGS),
    ] = "text"
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="debug, info or warning: from where on it is told. Requests are told at info. Default: info, with "
            "--stdio warning.",
            rich_help_panel=_LOGS,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object when it can be reached: address, process, workspaces; or the error.",
            rich_help_panel=_LOGS,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class PsOptions:
    """What `ps` takes."""

    home: Home = None
    json: JsonResult = False


__all__ = ["PsOptions", "ServeOptions"]
