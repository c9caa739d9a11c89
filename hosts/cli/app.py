"""The complete command line. Each command is in its own module, or in one with the others of its group."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from .command import DEBUG
from .exits import USAGE
from .options import ChatOptions


class _Commands(TyperGroup):
    """The commands, and those of capabilities of other packages, which are looked for only if no other has the name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._of_capability(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        installed = entry_points(group="worldagent.capabilities")
        others = sorted(each.name for each in installed if not each.value.startswith("worldagent."))
        return [*super().list_commands(ctx), *filter(self._of_capability, others)]

    @staticmethod
    def _of_capability(name: str) -> Any:
        from ..service.operations import of_others
        from .derived import commands_of

        found = of_others().get(name)
        return get_command(commands_of(name, found.about, found.operations)) if found and found.operations else None


# Tracebacks must not show local variables, since one of them can hold a role.
app = typer.Typer(
    name="worldagent",
    cls=_Commands,
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
    "Conversations": (
        *(
            "threads",
            "queued",
            "background",
            "rating",
            "approvals",
            "trace",
            "memory",
            "society",
            "board",
            "drafts",
            "budgets",
        ),
    ),
    "Configuration": (
        *("workspace", "workspace_events", "workspace_try", "cases", "profiles", "skills", "schedule", "logins"),
        *("trust", "policy", "roles", "importing", "models", "optimise", "evaluate", "evals", "doctor"),
    ),
    "Servers": ("serve", "acp", "worker", "ps"),
    "Data": ("upkeep", "storage"),
}.items():
    for module in modules:
        found = import_module(f".{module}", __package__)
        if hasattr(found, "app"):
            app.add_typer(found.app, rich_help_panel=panel)
