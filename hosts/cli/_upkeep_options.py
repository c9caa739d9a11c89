"""The options of `backup`, and of the commands of `threads` that remove, export, import and prune."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ._thread_options import ThreadOptions, ThreadsOptions
from .options import Home, JsonResult

STREAM: Final = "-"
"""Names standard output or input in place of a file."""

_WHERE, _WHICH = "Where", "Which"


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(ThreadOptions):
    """What `threads rm` takes."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it unasked.", rich_help_panel=_WHICH)] = False
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel its turn, if one runs or can go on.", rich_help_panel=_WHICH),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ThreadOptions):
    """What `threads export` takes."""

    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write, - for standard output; of what is there, only an export is replaced.",
            rich_help_panel=_WHERE,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ThreadsOptions):
    """What `threads import` takes."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `threads export` wrote, - for standard input.")]
    to: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="THREAD",
            help="The thread that gets the conversation. Default: the name it had.",
            rich_help_panel=_WHERE,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PruneOptions(ThreadsOptions):
    """What `threads prune` takes."""

    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many checkpoints of each thread stay, 1 to 1000000000. Default: the setting checkpoint_keep.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    age: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How old they may be, up to 315360000. Default: the setting checkpoint_age.",
            rich_help_panel=_WHICH,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BackupOptions:
    """What `backup` takes."""

    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.")]
    home: Home = None
    without_roles: Annotated[
        bool,
        typer.Option(
            "--without-roles", help="Leave out the stored roles and the key of role digests.", rich_help_panel=_WHICH
        ),
    ] = False
    home_only: Annotated[
        bool,
        typer.Option(
            "--home-only",
            help="Copy the home alone, where its database is on a Postgres server; pg_dump copies that.",
            rich_help_panel=_WHICH,
        ),
    ] = False
    json: JsonResult = False


__all__ = ["STREAM", "BackupOptions", "ExportOptions", "ImportOptions", "PruneOptions", "RemoveOptions"]
