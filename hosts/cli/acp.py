"""The command `acp`, which an editor starts to use an agent over the Agent Client Protocol."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import typer

from .command import Work, bad_usage, command
from .exits import OF_SIGNALS
from .options import ROLE_HOST_TOKEN, AgentOptions, MadeOptions, app_option, option_group, role_host_option
from .output import Output

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role
    from ..serving.logs import LogLevel

_OWN: Final = ("account", "channel", "mode", "log_level")

app = typer.Typer()


@option_group
class AcpOptions(MadeOptions):
    """The options of `acp`. All but `_OWN` are those of `AgentOptions`.

    Attributes:
        workspace (--workspace ID; Where): The agent's workspace.
        account (--account ID; Where): The account that speaks. Its stored role applies.
        channel (--channel ID; Where): The channel of the threads. Its stored role applies.
        mode (--mode NAME=TEXT|NAME=@FILE; Model and role): A call role that the editor offers as a session mode, by its
            name. Prompts in this mode have the role. It is never stored, but other users of the machine can see TEXT in
            its list of processes. Repeatable.
        role_host_stdio (--role-host-stdio COMMAND; Stored roles): A role host that is a program, such as 'my-host
            --stdio'.
        log_level (--log-level LEVEL; Output): The lowest level of the log on stderr: debug, info or warning.
    """

    app: str | None = app_option(
        "An agent of your own, with its functions and shapes: a WorldAgent, or a function that makes one. "
        "Modules of the current folder can be named."
    )
    workspace: str = "default"
    account: str | None = None
    channel: str | None = None
    mode: list[str] | None = None
    role_host: str | None = role_host_option("--token-file")
    role_host_stdio: str | None = None
    token_file: Path | None = ROLE_HOST_TOKEN
    log_level: str = "warning"


@command(app, panel="Servers", json=False)
def acp(options: AcpOptions, output: Output) -> Work:
    """Serve an agent to the editor that starts it, such as Zed, with the Agent Client Protocol.

    A session is a thread of the workspace. It runs until its input ends, Ctrl-C or SIGTERM. Turns then stop at their
    next step and can be resumed. It needs the extra [bold]acp[/bold].

    [bold]Examples[/bold]

      worldagent acp --lm openai/gpt-4o --profile coder

      worldagent acp --app shop:agent --mode critic=@critic.md
    """
    _check_extra()
    if any(given.partition("=")[2] == "-" for given in (*(options.worker or ()), *(options.mode or ()))):
        raise bad_usage(
            "--worker and --mode must not read standard input, which belongs to the client", remedy="give it as @FILE"
        )
    from ..acp import NO_ROLE
    from .agents import open_agent
    from .sources import modes

    roles = modes(options.mode)
    if NO_ROLE in roles:
        raise bad_usage(f"--mode {NO_ROLE!r} is the mode without a role", remedy="give the mode another name")
    shared = {each.name: getattr(options, each.name) for each in fields(options) if each.name not in _OWN}
    with contextlib.redirect_stdout(sys.stderr):  # the app's code must not print into the protocol
        agent = open_agent(AgentOptions(**shared), output, stays=True)
    return _serve(options, agent, roles)


async def _serve(options: AcpOptions, agent: WorldAgent, roles: Mapping[str, Role]) -> int | None:
    from ..acp import serve_acp
    from ..serving import quiet_logs

    with quiet_logs(level=cast("LogLevel", options.log_level)):  # it refuses others
        async with agent:
            stopped = await serve_acp(agent, account=options.account, channel=options.channel, modes=roles)
    return OF_SIGNALS.get(stopped or 0)


def _check_extra() -> None:
    from importlib.util import find_spec

    from ...core.errors import MissingExtra

    if find_spec("acp") is None:
        raise MissingExtra(
            "the Agent Client Protocol needs the extra 'acp', which is not installed",
            remedy="run pip install 'worldagent[acp]'",
        )
