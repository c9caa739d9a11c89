"""The complete command line. Each command is in its own module, or in one with the others of its group."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import (
    acp,
    approvals,
    doctor,
    drafts,
    evals,
    evaluate,
    importing,
    logins,
    memory,
    models,
    optimise,
    policy,
    profiles,
    ps,
    roles,
    schedule,
    serve,
    skills,
    society,
    storage,
    threads,
    trace,
    trust,
    turns,
    upkeep,
    worker,
    workspace,
    workspace_events,
)
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
        from .chat import chat

        raise typer.Exit(chat(ChatOptions()))
    typer.echo(ctx.get_help(), nl=False)
    raise typer.Exit(USAGE)


# In the order of `--help`. Typer adds the commands of an app without a name directly to this one.
app.add_typer(turns.app)
app.add_typer(threads.app, name="threads", rich_help_panel="Conversations")
app.add_typer(turns.turns_app, name="turns", rich_help_panel="Conversations")
app.add_typer(approvals.app, name="approvals", rich_help_panel="Conversations")
app.add_typer(trace.app, name="trace", rich_help_panel="Conversations")
app.add_typer(memory.app, name="memory", rich_help_panel="Conversations")
app.add_typer(society.app, name="society", rich_help_panel="Conversations")
app.add_typer(drafts.app, name="drafts", rich_help_panel="Conversations")
workspace.app.add_typer(workspace_events.app)
app.add_typer(workspace.app, name="workspace", rich_help_panel="Configuration")
app.add_typer(profiles.app, name="profiles", rich_help_panel="Configuration")
app.add_typer(skills.app, name="skills", rich_help_panel="Configuration")
app.add_typer(schedule.app, name="schedule", rich_help_panel="Configuration")
app.add_typer(logins.app, name="mcp", rich_help_panel="Configuration")
app.add_typer(trust.app, name="trust", rich_help_panel="Configuration")
app.add_typer(policy.app, name="policy", rich_help_panel="Configuration")
app.add_typer(roles.app, name="roles", rich_help_panel="Configuration")
for part in (importing.app, models.app, optimise.app, evaluate.app):
    app.add_typer(part)
app.add_typer(evals.app, name="evals", rich_help_panel="Configuration")
for part in (doctor.app, serve.app, acp.app, worker.app, ps.app, upkeep.app):
    app.add_typer(part)
app.add_typer(storage.app, name="storage", rich_help_panel="Data")
