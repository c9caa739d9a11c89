"""The commands of `trace` with their options and help; what they do is in `_trace`, which loads when one runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ._thread_options import ThreadsOptions
from .options import options_of

_WHERE, _WHICH, _OUTPUT = "Where", "Which", "Output"

_TRACE = """\
What turns and calls did: when, what let them through, how many tokens, what it cost.

Traces hold no text of a person or a model, unless the agent captures it, and never a role.

[bold]Example[/bold]

  worldagent trace list --thread t1
"""

_LIST = """\
List the newest turns and calls of a workspace, the newest first.

TOKENS are those that models were sent and gave, together.

[bold]Example[/bold]

  worldagent trace list --thread t1 --limit 20
"""

_SHOW = """\
Draw what a turn did as a tree, with times, decisions, tokens and costs.

TURN is a turn's id, or that of a call outside any turn, as [bold]trace list[/bold] tells it. Of a file with one turn it
can be left out.

[bold]Examples[/bold]

  worldagent trace show turn_01a2

  worldagent trace show turn_01a2 --html turn.html

  worldagent trace show --file agent.jsonl
"""

_EXPORT = """\
Write a turn's trace as JSON Lines (trace/1), to standard output or a file.

[bold]Example[/bold]

  worldagent trace export turn_01a2 -o turn.jsonl
"""

_File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Traces as JSON Lines, instead of the home's.", rich_help_panel=_WHERE),
]


@dataclass(frozen=True, kw_only=True)
class TraceListOptions(ThreadsOptions):
    """What `trace list` takes."""

    thread: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those of this thread.", rich_help_panel=_WHICH)
    ] = None
    limit: Annotated[int, typer.Option(metavar="N", help="How many, 1 to 1000.", rich_help_panel=_WHICH)] = 50


@dataclass(frozen=True, kw_only=True)
class TraceShowOptions(ThreadsOptions):
    """What `trace show` takes."""

    turn: Annotated[str | None, typer.Argument(metavar="[TURN]", help="The turn, or the call outside any.")] = None
    file: _File = None
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write it as one page that needs nothing else; of what is there, only such a page is replaced.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TraceExportOptions(ThreadsOptions):
    """What `trace export` takes."""

    turn: Annotated[str, typer.Argument(metavar="TURN", help="The turn, or the call outside any.")]
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write; of what is there, only a trace is replaced.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None


def add_trace(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    trace = typer.Typer(no_args_is_help=True, help=_TRACE, rich_markup_mode="rich")
    trace.command("list", help=_LIST)(options_of(TraceListOptions, _list))
    trace.command("show", help=_SHOW)(options_of(TraceShowOptions, _show))
    trace.command("export", help=_EXPORT)(options_of(TraceExportOptions, _export))
    app.add_typer(trace, name="trace")


def _list(options: TraceListOptions) -> int:
    from .trace import list_traces

    return list_traces(options)


def _show(options: TraceShowOptions) -> int:
    from .trace import show_trace

    return show_trace(options)


def _export(options: TraceExportOptions) -> int:
    from .trace import export_trace

    return export_trace(options)


__all__ = ["TraceExportOptions", "TraceListOptions", "TraceShowOptions", "add_trace"]
