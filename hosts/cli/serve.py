"""The commands that serve other programs until they are stopped: `serve` runs the sidecar, `role-host` a role host."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import typer

from .command import Work, bad_usage, command
from .exits import INTERRUPTED, OF_SIGNALS
from .options import (
    REACH,
    ROLE_HOST_TOKEN,
    WHERE,
    MadeOptions,
    app_option,
    flag,
    home_option,
    option,
    option_group,
    role_host_option,
)
from .output import Output

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ..role_host import Grant, Tokens
    from ..service.running import RunningSidecar
    from ..serving import Address, HttpOptions
    from ..sidecar import Limits, Sidecar
    from ..web import WebApp
    from .sidecars import Served

_TOKENS: Final = "set WORLDAGENT_SIDECAR_TOKEN, or give --token-file"
HTTP_OPTIONS: Final = ("token_file", "allow_remote", "tls_cert", "tls_key", "server_name", "json")
WEB_ADDRESS: Final = "127.0.0.1:8000"

app = typer.Typer()


def _tokens_option(what: str, variable: str) -> Any:
    return option(
        "FILE",
        "A file with the token that callers over HTTP must send, or a .toml file with several tokens and "
        f"{what}. Default: the token in {variable}.",
        REACH,
    )


# Options of both commands.
STDIO: Final = flag("--stdio", "Serve the process that started this one, and end with it.", REACH)
HTTP: Final = option("HOST:PORT", "Serve at http://HOST:PORT/mcp. Port 0 picks a free port.", REACH)
ALLOW_REMOTE: Final = flag(
    "--allow-remote",
    "Let other machines reach it without its own TLS, such as behind a proxy. It requires a token.",
    REACH,
)


@option_group
class ServeOptions(MadeOptions):
    """The options of `serve`.

    Attributes:
        web (--web; How it is reached): Serve the web app too: chats, pauses and events over HTTP, and the console at
            /console. Without --http it listens on 127.0.0.1:8000.
        a2a (--a2a MEMBER; How it is reached): A member that other programs can reach as an agent of A2A, at
            /a2a/MEMBER of the web app. Repeatable. It needs --app with a society.
        workspace (--workspace ID; How it is reached): A workspace to serve; * is any. Repeatable. Default: those that
            the tokens name, else default.
        tls_cert (--tls-cert FILE; How it is reached): The certificate, with its chain, as PEM.
        tls_key (--tls-key FILE; How it is reached): Its private key, as PEM.
        server_name (--server-name NAME; How it is reached): A name under which other machines reach it, besides its
            address and the names of loopback. Requests for other names are refused. Repeatable. Default: any name, or
            no other name if it listens on loopback.
        role_host_stdio (--role-host-stdio COMMAND; Stored roles): A role host that is a program, such as 'my-host
            --stdio'.
        turns (--turns N; Limits): The most concurrent turns of one workspace. More are refused.
        account_turns (--account-turns N; Limits): The most concurrent turns of one account in a workspace. More are
            refused.
        account_readers (--account-readers N; Limits): The most calls of one account that follow a turn or wait for
            changes over the web app. More are refused.
        workspaces (--workspaces N; Limits): The most workspaces with open agents. Idle agents are closed.
        drain (--drain SECONDS; Limits): How long turns can take to reach their next step at SIGTERM. Turns that take
            longer are stopped in the middle of a step.
        log_format (--log-format text|json; Output): The format of the log on stderr.
        log_level (--log-level LEVEL; Output): The lowest level to log: debug, info or warning. Requests are logged at
            info. Default: info, or warning with --stdio.
        json (--json; Output): Print one JSON object when the sidecar can be reached: address, process, workspaces; or
            the error.
    """

    stdio: bool = STDIO
    http: str | None = HTTP
    web: bool = False
    a2a: list[str] | None = None
    token_file: Path | None = _tokens_option("what each can use", "WORLDAGENT_SIDECAR_TOKEN")
    workspace: list[str] | None = None
    allow_remote: bool = ALLOW_REMOTE
    tls_cert: Path | None = None
    tls_key: Path | None = None
    server_name: list[str] | None = None
    app: str | None = app_option(
        "Agents of your own, with their functions and shapes: a function that takes the id of a workspace and "
        "makes its WorldAgent, or one WorldAgent. Modules of the current folder can be named."
    )
    role_host: str | None = role_host_option("--role-host-token-file")
    role_host_stdio: str | None = None
    role_host_token_file: Path | None = ROLE_HOST_TOKEN
    turns: int = 1000
    account_turns: int = 100
    account_readers: int = 100
    workspaces: int = 64
    drain: float = 5.0
    log_format: str = "text"
    log_level: str | None = None
    json: bool = False


@command(app, panel="Servers")
def serve(options: ServeOptions, output: Output) -> Work:
    """Serve agents to programs in any language, with the sidecar: an MCP server over its standard streams or HTTP.

    It runs until Ctrl-C, SIGTERM, or, with --stdio, the end of its input. Turns then stop at their next step and can be
    resumed. Tokens come from a file or the environment, never from arguments.

    [bold]Examples[/bold]

      worldagent serve --stdio --lm openai/gpt-4o

      worldagent serve --web

      worldagent serve --http 127.0.0.1:8200 --token-file token.txt --app shop:agent

      worldagent serve --a2a reviewer --token-file token.txt --app team:agent

      worldagent serve --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --token-file tokens.toml
    """
    if options.a2a and not options.stdio:
        options = replace(options, web=True)
    if options.web and options.http is None and not options.stdio:
        options = replace(options, http=WEB_ADDRESS)
    _check(options)
    from ..serving import HttpOptions
    from ..sidecar import Limits
    from .agents import load_engine
    from .sidecars import served_by
    from .sources import expanded

    limits = Limits(
        turns=options.turns,
        workspaces=options.workspaces,
        account_turns=options.account_turns,
        account_readers=options.account_readers,
    )
    http = HttpOptions(
        allow_remote=options.allow_remote,
        tls_cert=None if options.tls_cert is None else expanded("--tls-cert", options.tls_cert),
        tls_key=None if options.tls_key is None else expanded("--tls-key", options.tls_key),
        names=tuple(options.server_name or ()),
        drain=options.drain,
    )
    served = served_by(options, output)
    load_engine()  # now, since the first agent starts while other requests are served
    return _serve(options, output, served, limits, http)


async def _serve(
    options: ServeOptions, output: Output, served: Served, limits: Limits, http: HttpOptions
) -> int | None:
    """Run one sidecar from its start to its end. Its file says that it runs, once it can be reached."""
    from ..service.running import SidecarFile
    from ..serving import PATH, Address, accepted_names, quiet_logs, serve_http, serve_stdio
    from ..sidecar import Sidecar

    file = SidecarFile(_running(options, served))

    def make(workspace: str) -> WorldAgent:
        agent = served.make(workspace)
        file.add(agent.storage.sidecars)
        return agent

    def ready(found: Address) -> None:
        site = found.url.removesuffix(PATH)
        shown = file.set(address=found.url, **({"web": f"{site}/"} if options.web else {}))
        file.add(served.storage.sidecars)
        text = f"{found.url}\n{site}/console" if options.web else found.url
        output.result(shown.model_dump(mode="json", exclude={"state", "since"}), text)
        if served.tokens is None:
            output.note("note: no token is required, so every program of this machine can use the agents")

    draining = partial(file.set, state="draining")
    await served.check_model()
    sidecar = Sidecar(
        make,
        tokens=served.tokens,
        grant=served.grant,
        limits=limits,
        client_roles=served.client_roles,
        storage=served.storage,
    )
    level = options.log_level or ("warning" if options.stdio else "info")
    try:
        with quiet_logs(level=cast("Any", level), form=cast("Any", options.log_format)):  # it refuses others
            async with sidecar:
                if options.http is None:
                    file.add(served.storage.sidecars)
                    stopped = await serve_stdio(sidecar, drain=http.drain, draining=draining)
                else:
                    address = Address.parse(options.http)
                    stopped = await serve_http(
                        sidecar,
                        address,
                        http,
                        ready=ready,
                        draining=draining,
                        tokens_by=_TOKENS,
                        web=_web_app(sidecar, served, accepted_names(address, http), options.a2a or ())
                        if options.web
                        else None,
                    )
                return OF_SIGNALS.get(stopped or 0)
    finally:
        file.remove()


def _web_app(sidecar: Sidecar, served: Served, names: Collection[str] | None, a2a: Collection[str]) -> WebApp:
    from ..web import WebApp

    return WebApp(sidecar, tokens=served.tokens, grant=served.grant, names=names, a2a=a2a)


def _running(options: ServeOptions, served: Served) -> RunningSidecar:
    from importlib.metadata import version

    from ..service.running import RunningSidecar

    return RunningSidecar(
        pid=os.getpid(),
        transport="http" if options.http else "stdio",
        address=None,
        workspaces=served.workspaces,
        since=datetime.now(UTC),
        state="ready",
        version=version("worldagent"),
    )


def _check(options: ServeOptions) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    from .agents import check_hosts
    from .sidecars import agent_options

    _check_transport(options, "serve")
    given = [f"--{name.replace('_', '-')}" for name in HTTP_OPTIONS if getattr(options, name)]
    if options.stdio and options.web:
        raise bad_usage("--stdio and --web exclude each other", remedy="give one of them")
    if options.a2a and (options.stdio or options.app is None):
        raise bad_usage("--a2a needs --app and is for --http", remedy="name an app whose agent has a society")
    if options.stdio and given:
        raise bad_usage(f"{given[0]} is for --http", remedy="omit it with --stdio")
    if options.stdio and any(worker.partition("=")[2] == "-" for worker in options.worker or ()):
        raise bad_usage("--worker must not read standard input, which belongs to the client", remedy="give it as @FILE")
    check_hosts(agent_options(options))


def _check_transport(options: ServeOptions | RoleHostOptions, name: str) -> None:
    if options.stdio == (options.http is not None):
        raise bad_usage(f"{name} takes exactly one of --stdio and --http", remedy="give one of them")


# --- role-host --------------------------------------------------------------------------------------------------------


@option_group
class RoleHostOptions:
    """The options of `role-host`.

    Attributes:
        workspace (--workspace ID; Which): A workspace that callers can use; * is any. Repeatable. If you name a scope,
            all others are refused.
        account (--account ID; Which): An account that callers can use; * is any. Repeatable.
        channel (--channel ID; Which): A channel that callers can use; * is any. Repeatable.
        store (--store FILE; Where): Keep the roles in this file instead.
    """

    stdio: bool = STDIO
    http: str | None = HTTP
    allow_remote: bool = ALLOW_REMOTE
    token_file: Path | None = _tokens_option("their scopes", "WORLDAGENT_ROLE_HOST_TOKEN")
    workspace: list[str] | None = None
    account: list[str] | None = None
    channel: list[str] | None = None
    home: Path | None = home_option(WHERE, "the embedded store")
    store: Path | None = None


@command(app, "role-host", panel="Servers", json=False)
def role_host(options: RoleHostOptions, output: Output) -> Work:
    """Run a role host, which keeps roles for other programs. It speaks MCP over its standard streams or HTTP.

    It runs until Ctrl-C, SIGTERM, or, with --stdio, the end of its input.

    [bold]Examples[/bold]

      worldagent role-host --stdio --store roles.db

      worldagent role-host --http 127.0.0.1:8100 --token-file token.txt
    """
    _check_role_host(options)
    from ...core import STORED_TIERS
    from ..role_host import EVERYTHING, Address, Grant, Tokens, read_token_file
    from .agents import TOKEN_VARIABLE

    named = {tier: frozenset(ids) for tier in STORED_TIERS if (ids := getattr(options, tier.value))}
    grant = Grant(named) if named else EVERYTHING
    if options.http is None:
        return _serve_roles(options, output, None, None, grant)
    tokens: Tokens[Grant] | None = None
    if options.token_file is not None:
        tokens = read_token_file(options.token_file, grant)
    elif token := os.environ.get(TOKEN_VARIABLE):
        tokens = Tokens([(token, grant)], source=TOKEN_VARIABLE)
    return _serve_roles(options, output, Address.parse(options.http), tokens, grant)


async def _serve_roles(
    options: RoleHostOptions, output: Output, address: Address | None, tokens: Tokens[Grant] | None, grant: Grant
) -> int | None:
    from ...agent import Settings
    from ...role_resolution import SqliteRoleStore
    from ...storage import Storage
    from ..role_host import RoleHost, quiet_logs, serve_http, serve_stdio

    def ready(found: Address) -> None:
        output.result({}, found.url)
        if tokens is None:
            output.note("note: no token is required, so every program of this machine can read and change the roles")

    settings = Settings()
    file = (options.store or Storage(home=options.home or settings.home).roles).expanduser().absolute()
    async with aclosing(await SqliteRoleStore.open(file, limit=settings.role_limit)) as store:
        host = RoleHost(store, tokens=tokens, grant=grant)
        with quiet_logs():
            if address is None:
                stopped = await serve_stdio(host)
            else:
                stopped = await serve_http(host, address, allow_remote=options.allow_remote, ready=ready)
    return INTERRUPTED if stopped == signal.SIGINT else None


def _check_role_host(options: RoleHostOptions) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    _check_transport(options, "role-host")
    if options.stdio and (options.token_file is not None or options.allow_remote):
        raise bad_usage("--token-file and --allow-remote are for --http", remedy="omit them with --stdio")
    if options.home is not None and options.store is not None:
        raise bad_usage("--home and --store exclude each other", remedy="give only one of them")
    named = options.workspace or options.account or options.channel
    if options.token_file is not None and options.token_file.suffix == ".toml" and named:
        raise bad_usage(
            "options and the token file must not both name scopes", remedy="omit --workspace, --account and --channel"
        )
