"""The complete command line. Each command is in its own module, or in one with the others of its group."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from .command import DEBUG
from .exits import USAGE
from .options import ChatOptions

# Tracebacks must not show local variables, since one of them can hold a role.
app = typer.Typer(
    name="worldagent",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"worldagent {version('worldagent')}")
        raise typer.Exit


@app.callback()
def _worldagent(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print on stderr where an error comes from, without prompts or answers.")
    ] = False,
) -> None:
    """Run World Agents: turns and tasks that follow a role. The runtime never stores the role.

    Without a command, it opens a chat if it runs at a terminal.

    [bold]Example[/bold]

      worldagent ask 'What is the capital of France?'

    Exit codes: 0 done, 1 failed, 2 bad usage, 3 waits for a person, 130 interrupted, 143 stopped by SIGTERM.
    """
    DEBUG.set(debug)
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        from ..chat import chat

        raise typer.Exit(chat(ChatOptions()))
    typer.echo(ctx.get_help(), nl=False)
    raise typer.Exit(USAGE)


# By the headings of `--help`, in its order. Typer adds the commands of an app without a name directly to this one. A
# module that has no app adds to that of another.
for panel, modules in {
    "Turns": ("turns",),
    "Conversations": ("threads", "rating", "approvals", "trace", "memory", "society", "drafts"),
    "Configuration": (
        *("workspace", "workspace_events", "profiles", "skills", "schedule", "logins", "trust", "policy", "roles"),
        *("importing", "models", "optimise", "evaluate", "evals", "doctor"),
    ),
    "Servers": ("serve", "acp", "worker", "ps"),
    "Data": ("upkeep", "storage"),
}.items():
    for module in modules:
        found = import_module(f".{module}", __package__)
        if hasattr(found, "app"):
            app.add_typer(found.app, rich_help_panel=panel)
