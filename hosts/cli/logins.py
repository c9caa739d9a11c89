"""The commands `mcp list`, `login` and `logout`: logins to MCP servers with OAuth."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import bad_usage, command, storage_of
from .exits import FAILED
from .options import HOME, JSON_RESULT, PROFILE, option_group
from .output import Output, table, time_text

if TYPE_CHECKING:
    from ...mcp_client.logins import KeptLogin, LoginRecord
    from ...mcp_client.tools import McpServer

_HEAD: Final = ("SERVER", "ADDRESS", "LOGIN", "UNTIL")
_PORTS: Final = 1 << 16

app = typer.Typer(name="mcp", no_args_is_help=True)


@app.callback()
def _mcp() -> None:
    """MCP servers: which of them need a login with OAuth, and logging in.

    A login is for all accounts of the workspace, or for one if the server has `login = "account"`. Its tokens are in
    the keyring of the system if the extra keyring is installed and there is one, else in a file of the home that only
    you can read.

    [bold]Example[/bold]

      worldagent mcp login tracker
    """


@option_group
class McpOptions:
    """The options of every command of `mcp`.

    Attributes:
        workspace (--workspace ID; Where): The workspace that the login is for.
        account (--account ID; Where): The account that the login is for, if each logs in for itself.
    """

    workspace: str = "default"
    account: str | None = None
    home: Path | None = HOME
    profile: str | None = PROFILE
    json: bool = JSON_RESULT


@command(app, "list")
async def list_servers(options: McpOptions, output: Output) -> None:
    """List the MCP servers that can be logged in to, and whether there is a login. Nothing is contacted.

    [bold]Example[/bold]

      worldagent mcp list --json
    """
    rows, found = [], []
    for name, server in _servers(options).items():
        login = server.login
        if login is None:
            continue
        state, until = "for each account", None
        if login.by != "account" or options.account is not None:
            state, until = _state(await _kept(options, name, server).read())
        found.append({"name": name, "address": server.host.label, "by": login.by, "state": state, "until": until})
        rows.append((name, server.host.label, state, "-" if until is None else time_text(until)))
    output.result({"servers": found}, table(_HEAD, rows) if rows else "no MCP server can be logged in to")


@command(app, "login")
async def log_in(options: McpOptions, output: Output, name: str, port: int = 0, no_browser: bool = False) -> None:
    """Log in to an MCP server, and keep the tokens for the workspace, or for an account.

    It prints the address at which you log in, and opens it in a browser if it runs at a terminal. Then the browser
    returns to this machine. Agents that are open use the login from their next call. If your browser is on another
    machine, forward the port first, as with `ssh -L 8765:127.0.0.1:8765`, and add --port 8765 --no-browser.

    [bold]Examples[/bold]

      worldagent mcp login tracker

      worldagent mcp login tracker --workspace shop --no-browser

      worldagent mcp login mail --account ana

    Args:
        name (NAME): The server, by its name in the setting mcp_servers, in a file of mcp_files, or in the profile.
        port (--port PORT): The port of this machine that the browser returns to. Default: any that is free.
        no_browser (--no-browser): Print the address only, and open no browser.
    """
    from ...core import SystemClock
    from ...mcp_client.oauth import log_in as get_tokens
    from ...mcp_client.oauth import loopback
    from ...mcp_client.tools.results import failures_of

    server = _server(options, name)
    login, host = server.login, server.host
    if not 0 <= port < _PORTS:
        raise bad_usage(f"--port must be a port, got {port}", remedy="leave it out, or name the one that is registered")

    async def show(url: str) -> None:
        output.note(f"log in here: {url}")
        if not no_browser and output.form == "text" and sys.stdin.isatty() and sys.stderr.isatty():
            import webbrowser

            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(url)

    assert login is not None
    kept, failures = _kept(options, name, server), failures_of(name, server, None)
    await get_tokens(host, login, kept, failures, clock=SystemClock(), show=show, back=loopback(port))
    state, until = _state(await kept.read())
    whose = f"the account {options.account!r}" if login.by == "account" else f"the workspace {options.workspace!r}"
    output.note(f"logged in to the MCP server {name!r} for {whose}")
    output.result({"login": {"name": name, "state": state, "until": until}})


@command(app, "logout")
async def log_out(options: McpOptions, output: Output, name: str) -> int | None:
    """Remove the login to an MCP server from this machine. The exit code is 1 if there was none.

    The authorization server is not told. To end the access itself, revoke it there.

    [bold]Example[/bold]

      worldagent mcp logout tracker

    Args:
        name (NAME): The server, by its name in the setting mcp_servers, in a file of mcp_files, or in the profile.
    """
    if not await _kept(options, name, _server(options, name)).remove():
        output.failed("not_found", f"there was no login to the MCP server {name!r}", "see `worldagent mcp list`")
        return FAILED
    output.note(f"the login to the MCP server {name!r} was removed")
    output.result({"removed": {"name": name}})
    return None


def _servers(options: McpOptions) -> Mapping[str, McpServer]:
    from ...agent import Settings
    from ...agent.choices import chosen_profile, servers_of

    settings = Settings()
    return servers_of(chosen_profile(options.profile, settings), settings, {})


def _server(options: McpOptions, name: str) -> Any:
    from ...core.errors import InvalidArgument

    servers = _servers(options)
    found = servers.get(name)
    if found is None or found.login is None:
        known = ", ".join(sorted(each for each, server in servers.items() if server.login is not None))
        why = "" if found is None else ": it is a program, or has a token"
        raise InvalidArgument(
            f"{name!r} is not an MCP server that can be logged in to{why}",
            remedy=f"name one of these: {known}" if known else "add it to mcp_servers, with a url and without a token",
        )
    return found


def _kept(options: McpOptions, name: str, server: McpServer) -> KeptLogin:
    from ...core.scope import check_id
    from ...mcp_client import HttpHost
    from ...mcp_client.logins import LoginStore

    check_id("workspace", options.workspace)
    assert isinstance(server.host, HttpHost)
    assert server.login is not None
    account = None
    if server.login.by == "account":
        if options.account is None:
            raise bad_usage(f"each account logs in to {name!r} for itself", remedy="name it with --account")
        account = check_id("account", options.account)
    return LoginStore(storage_of(options.home).resolve(), options.workspace).of(name, server.host.url, account)


def _state(record: LoginRecord | None) -> tuple[str, datetime | None]:
    """Whether there is a login, and when its access token expires if that ends it."""
    if record is None:
        return "none", None
    until = None if record.expires is None or record.renewable else datetime.fromtimestamp(record.expires, UTC)
    return ("over" if record.tokens is None or (until is not None and until <= datetime.now(UTC)) else "active"), until
