"""The command `role-host`: the reference role host on the embedded store, as its own process."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import Work, bad_usage, command
from .exits import INTERRUPTED
from .options import REACH, WHERE, WHICH, AllowRemote, Http, Stdio, option
from .output import Output

if TYPE_CHECKING:
    from ...core import Tier
    from ..role_host import Address, Grant, RoleHost, Tokens

app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class RoleHostOptions:
    """The options of `role-host`."""

    stdio: Stdio = False
    http: Http = None
    allow_remote: AllowRemote = False
    token_file: Annotated[
        Path | None,
        option(
            "FILE",
            "A file with the token that callers over HTTP must send, or a .toml file with several tokens and "
            "their scopes. Default: the token in WORLDAGENT_ROLE_HOST_TOKEN.",
            REACH,
        ),
    ] = None
    workspace: Annotated[
        list[str] | None,
        option(
            "ID",
            "A workspace that callers can use; * is any. Repeatable. If you name a scope, all others are refused.",
            WHICH,
        ),
    ] = None
    account: Annotated[
        list[str] | None, option("ID", "An account that callers can use; * is any. Repeatable.", WHICH)
    ] = None
    channel: Annotated[
        list[str] | None, option("ID", "A channel that callers can use; * is any. Repeatable.", WHICH)
    ] = None
    home: Annotated[
        Path | None,
        option(
            "FOLDER", "The folder of the embedded store. Default: the setting home, else the user's data folder.", WHERE
        ),
    ] = None
    store: Annotated[Path | None, option("FILE", "Keep the roles in this file instead.", WHERE)] = None


@app.command("role-host", rich_help_panel="Servers")
@command
def role_host(options: RoleHostOptions, output: Output) -> Work:
    """Run a role host, which keeps roles for other programs. It speaks MCP over its standard streams or HTTP.

    It runs until Ctrl-C, SIGTERM, or, with --stdio, the end of its input.

    [bold]Examples[/bold]

      worldagent role-host --stdio --store roles.db

      worldagent role-host --http 127.0.0.1:8100 --token-file token.txt
    """
    _check(options)
    from ..role_host import Address

    grant = _grant(options)
    address = None if options.http is None else Address.parse(options.http)
    return _serve(options, output, address, None if address is None else _tokens(options, grant), grant)


async def _serve(
    options: RoleHostOptions, output: Output, address: Address | None, tokens: Tokens[Grant] | None, grant: Grant
) -> int | None:
    from ...agent import Settings
    from ...role_resolution import SqliteRoleStore
    from ...storage import Storage
    from ..role_host import RoleHost

    settings = Settings()
    file = options.store or Storage(home=options.home or settings.home).roles
    store = await SqliteRoleStore.open(file.expanduser().absolute(), limit=settings.role_limit)
    try:
        stopped = await _until_stopped(RoleHost(store, tokens=tokens, grant=grant), options, output, address)
    finally:
        await store.aclose()
    return INTERRUPTED if stopped == signal.SIGINT else None


async def _until_stopped(
    host: RoleHost, options: RoleHostOptions, output: Output, address: Address | None
) -> int | None:
    from ..role_host import quiet_logs, serve_http, serve_stdio

    def ready(found: Address) -> None:
        output.result({}, found.url)
        if host.tokens is None:
            output.note("note: no token is required, so every program of this machine can read and change the roles")

    with quiet_logs():
        if address is None:
            return await serve_stdio(host)
        return await serve_http(host, address, allow_remote=options.allow_remote, ready=ready)


def _check(options: RoleHostOptions) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    if options.stdio == (options.http is not None):
        raise bad_usage("role-host takes exactly one of --stdio and --http", remedy="give one of them")
    if options.stdio and (options.token_file is not None or options.allow_remote):
        raise bad_usage("--token-file and --allow-remote are for --http", remedy="omit them with --stdio")
    if options.home is not None and options.store is not None:
        raise bad_usage("--home and --store exclude each other", remedy="give only one of them")
    if options.token_file is not None and options.token_file.suffix == ".toml" and _named(options):
        raise bad_usage(
            "options and the token file must not both name scopes", remedy="omit --workspace, --account and --channel"
        )


def _grant(options: RoleHostOptions) -> Grant:
    from ..role_host import EVERYTHING, Grant

    named = _named(options)
    return Grant({tier: frozenset(ids) for tier, ids in named.items()}) if named else EVERYTHING


def _tokens(options: RoleHostOptions, grant: Grant) -> Tokens[Grant] | None:
    from ..role_host import Tokens, read_token_file
    from .agents import TOKEN_VARIABLE

    if options.token_file is not None:
        return read_token_file(options.token_file, grant)
    token = os.environ.get(TOKEN_VARIABLE)
    return Tokens([(token, grant)], source=TOKEN_VARIABLE) if token else None


def _named(options: RoleHostOptions) -> dict[Tier, list[str]]:
    from ...core import STORED_TIERS

    given: dict[Tier, list[str] | None] = {tier: getattr(options, tier.value) for tier in STORED_TIERS}
    return {tier: ids for tier, ids in given.items() if ids}
