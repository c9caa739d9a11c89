"""The options of the commands as frozen dataclasses, and how one becomes a command.

Imported for every `--help`: nothing of the package and nothing heavy may be imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

_WHERE, _MODEL, _OUTPUT = "Where", "Model and role", "Output"


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """What every command that runs a turn takes."""

    workspace: Annotated[str, typer.Option(metavar="ID", help="The agent's workspace.", rich_help_panel=_WHERE)] = (
        "default"
    )
    thread: Annotated[
        str, typer.Option(metavar="ID", help="The conversation within the workspace.", rich_help_panel=_WHERE)
    ] = "main"
    account: Annotated[
        str | None, typer.Option(metavar="ID", help="Who speaks; their stored role applies.", rich_help_panel=_WHERE)
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Where the thread hangs; its stored role applies.", rich_help_panel=_WHERE),
    ] = None
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the databases. Default: the setting home, else the user's data folder.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    lm: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model string such as openai/gpt-4o, or local for the embedded model. Default: the setting lm "
            "(WORLDAGENT_LM), else local. Keys come from the environment.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    identity: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Who the agent is; no role changes it.", rich_help_panel=_MODEL),
    ] = None
    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE|-",
            help="How to go about this one turn. @FILE reads a file, - reads standard input, @@ begins a text with "
            "a single @. Nothing stores it, but other users of the machine may see TEXT among its processes.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TEXT|NAME=@FILE",
            help="A worker that work can be dispatched to, with its instructions. Repeatable.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object: the turn, or the error.", rich_help_panel=_OUTPUT),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Say on stderr which role tiers were active.", rich_help_panel=_OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class AskOptions(TurnOptions):
    """What `ask` takes."""

    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads standard input.")]
    events: Annotated[
        bool,
        typer.Option("--events", help="Print each event of the turn as a line of JSON.", rich_help_panel=_OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TaskOptions(TurnOptions):
    """What `task` takes."""

    shape: Annotated[str, typer.Argument(metavar="SHAPE", help="The kind of work, such as subagent.")]
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="KEY=VALUE", help="One param, as text. Repeatable; goes over --params."),
    ] = None
    params: Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="The params as a JSON object.")] = None


O = TypeVar("O")  # noqa: E741  # an options class


def options_of(kind: type[O], run: Callable[[O], int]) -> Callable[..., None]:
    """Make a function that typer can take as a command: one parameter for each field of `kind`.

    Args:
        kind: The options class.
        run: What the command does; its result is the exit code.
    """
    hints = get_type_hints(kind, include_extras=True)

    def command(**given: Any) -> None:
        raise typer.Exit(run(kind(**given)))

    signature = inspect.signature(kind)
    typed = [parameter.replace(annotation=hints[name]) for name, parameter in signature.parameters.items()]
    command.__signature__ = signature.replace(parameters=typed)  # type: ignore[attr-defined]  # inspect reads it
    return command


__all__ = ["AskOptions", "TaskOptions", "TurnOptions", "options_of"]
