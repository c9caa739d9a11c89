"""The options of `resume` and `threads`, and of whatever goes on with a turn; the rest of `_options`, and as light."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .options import WORKSPACE, AgentOptions, Events, Home, JsonResult

_WHERE, _WHICH, _NEW = "Where", "Which", "New thread"
_ANSWERS, _ROLE = "Answers", "Model and role"


@dataclass(frozen=True, kw_only=True)
class GoOnOptions(AgentOptions):
    """What every command takes that goes on with a turn. The turn keeps the account and the channel it began with."""

    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE|-",
            help="The call role again, where the turn began with one. @FILE reads a file, - reads standard input, @@ "
            "begins a text with a single @. Nothing stores it, but other users of the machine may see TEXT among its "
            "processes.",
            rich_help_panel=_ROLE,
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Who answers; a policy may say who may.", rich_help_panel=_ANSWERS),
    ] = None
    no_role: Annotated[
        bool,
        typer.Option("--no-role", help="Go on without the call role that the turn began with.", rich_help_panel=_ROLE),
    ] = False
    on_role_change: Annotated[
        str,
        typer.Option(
            metavar="fail|refresh",
            help="What to do where another role is active than when the turn began: fail, or go on with what is "
            "active now.",
            rich_help_panel=_ROLE,
        ),
    ] = "fail"
    events: Events = False


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(GoOnOptions):
    """What `resume` takes."""

    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The conversation whose turn is to go on.")]
    answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ID=]ANSWER",
            help="An answer to what waits: yes, no, edit FIELD=VALUE or always; an option, a text, the fields of a "
            "form. ID may be left out where one thing waits. Repeatable.",
            rich_help_panel=_ANSWERS,
        ),
    ] = None
    approve: Annotated[
        list[str] | None,
        typer.Option(metavar="[ID]", help="Approve the call that waits. Repeatable.", rich_help_panel=_ANSWERS),
    ] = None
    approve_all: Annotated[
        bool,
        typer.Option(
            "--approve-all", help="Approve every call that waits and is not rejected.", rich_help_panel=_ANSWERS
        ),
    ] = False
    reject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ID][=REASON]",
            help="Reject the call that waits; the reason is told to who wanted it. Repeatable.",
            rich_help_panel=_ANSWERS,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions:
    """What every command of `threads` takes."""

    workspace: Annotated[str, typer.Option(metavar="ID", help="The workspace.", rich_help_panel=_WHERE)] = WORKSPACE
    home: Home = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ThreadsListOptions(ThreadsOptions):
    """What `threads list` takes."""

    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only those that stand so, such as paused.", rich_help_panel=_WHICH),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only those on which a turn has run for this account.", rich_help_panel=_WHICH),
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only those whose newest turn is of this channel.", rich_help_panel=_WHICH),
    ] = None
    query: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only those whose title or messages say TEXT, in capitals or not.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|TIME",
            help="The next page: the page_key of the last thread that --json shows. A TIME such as 2026-11-24 or "
            "2026-11-24T10:00 lists those whose newest turn began before it.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    limit: Annotated[int, typer.Option(metavar="N", help="How many, 1 to 1000.", rich_help_panel=_WHICH)] = 100


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(ThreadsOptions):
    """What `threads cancel` takes, and every other command about one thread."""

    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The conversation within the workspace.")]


@dataclass(frozen=True, kw_only=True)
class RenameOptions(ThreadOptions):
    """What `threads rename` takes."""

    title: Annotated[
        str,
        typer.Argument(
            metavar="TITLE", help="1 to 120 characters. An empty one gives the first words of the thread back."
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ShowOptions(ThreadOptions):
    """What `threads show` takes."""

    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="The agent of your own that the thread belongs to. Its workspace and home are used, and it is part of "
            "the `resume` command that is shown.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    messages: Annotated[
        int, typer.Option(metavar="N", help="How many of the last messages, 1 to 1000.", rich_help_panel=_WHICH)
    ] = 6


@dataclass(frozen=True, kw_only=True)
class ForkOptions(ThreadOptions):
    """What `threads fork` takes."""

    at: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The message that the new thread goes on from; without it the newest.",
            rich_help_panel=_NEW,
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The new thread; without it one of THREAD and a number.", rich_help_panel=_NEW
        ),
    ] = None


class BareValues(TyperCommand):
    """A command whose `--approve` and `--reject` may stand alone, which typer has no word for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give each of them that stands alone an empty value."""
        given: list[str] = []
        for word, after in zip_longest(args, args[1:]):
            given.append(word)
            if word in ("--approve", "--reject") and (after is None or after.startswith("-")):
                given.append("")
        return super().parse_args(ctx, given)


__all__ = [
    "BareValues",
    "ForkOptions",
    "GoOnOptions",
    "RenameOptions",
    "ResumeOptions",
    "ShowOptions",
    "ThreadOptions",
    "ThreadsListOptions",
    "ThreadsOptions",
]
