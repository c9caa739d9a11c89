"""The options of `approvals` and `policy`; the rest of `_options`, and as light."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ._thread_options import GoOnOptions, ThreadsOptions
from .options import JsonResult

_WHERE, _WHICH, _ANSWERS = "Where", "Which", "Answers"

_Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="What waits, as `approvals list` tells it; all on one thread."),
]
_Thread = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The thread; else that whose turn the ids name.", rich_help_panel=_WHERE),
]


@dataclass(frozen=True, kw_only=True)
class ApprovalsListOptions(ThreadsOptions):
    """What `approvals list` takes."""

    thread: Annotated[
        str | None, typer.Option(metavar="ID", help="Only what waits on this thread.", rich_help_panel=_WHICH)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ApproveOptions(GoOnOptions):
    """What `approvals approve` takes."""

    ids: _Ids
    thread: _Thread = None
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help="Other arguments than it asked for: all of them, as a JSON object. For one call.",
            rich_help_panel=_ANSWERS,
        ),
    ] = None
    always: Annotated[
        bool,
        typer.Option(
            "--always",
            help="The same caller may make the same call, with equal arguments, for the rest of the turn, within the "
            "policy's limits.",
            rich_help_panel=_ANSWERS,
        ),
    ] = False
    always_any: Annotated[
        bool,
        typer.Option(
            "--always-any",
            help="As --always, for calls of this function with any arguments.",
            rich_help_panel=_ANSWERS,
        ),
    ] = False
    hash: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="The call's hash that was seen, so that nothing else is approved. For one call.",
            rich_help_panel=_ANSWERS,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RejectOptions(GoOnOptions):
    """What `approvals reject` takes."""

    ids: _Ids
    thread: _Thread = None
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; told to who wanted the call.", rich_help_panel=_ANSWERS)
    ] = ""


@dataclass(frozen=True, kw_only=True)
class PolicyCheckOptions:
    """What `policy check` takes."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as YAML or JSON.")]
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="An agent of your own: each rule must be about something that it can call. It is opened for that.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    json: JsonResult = False


__all__ = ["ApprovalsListOptions", "ApproveOptions", "PolicyCheckOptions", "RejectOptions"]
