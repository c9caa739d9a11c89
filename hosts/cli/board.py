"""The commands of `board`: the task briefs of members, how far they are, and moving one. None needs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from .operating import operation
from .options import ThreadsOptions, argument
from .output import Output, table, time_text

if TYPE_CHECKING:
    from ..service.board import BriefRecord

_COLUMNS: Final = ("ID", "STATE", "MEMBER", "GIVEN BY", "DEADLINE", "OBJECTIVE", "NOTE")
_WIDTHS: Final = (40, 9, 24, 24, 16, 40, 40)
_ID: Final = argument("BRIEF", "The id of the brief, as `board list` shows it.")

app = typer.Typer(name="board", no_args_is_help=True)


@app.callback()
def _board() -> None:
    """The board: the task briefs of members, who has each, and how far it is.

    [bold]Example[/bold]

      worldagent board list --state late
    """


def _rows(briefs: list[BriefRecord]) -> str:
    rows = [
        (
            *(each.id, each.state, each.member, each.giver),
            *("" if each.deadline is None else time_text(each.deadline), each.objective, each.note),
        )
        for each in briefs
    ]
    return table(_COLUMNS, rows, widths=_WIDTHS) if rows else "there are no briefs"


def _moved(found: Any) -> str:
    return f"{found.brief.id} is {found.brief.state}, and {found.brief.member} has it"


@operation(app, "list", "board_list", show=lambda found: _rows(found.briefs))
def list_briefs(
    options: ThreadsOptions,
    output: Output,
    member: str | None = None,
    *,
    giver: str | None = None,
    state: str | None = None,
    limit: int = 100,
    after: str | None = None,
) -> None:
    """List the task briefs of a member, or of all, the newest first.

    [bold]Examples[/bold]

      worldagent board list --state late

      worldagent board list --given-by cro

    Args:
        member (MEMBER): The member or person that has them. Without it, those of all are listed.
        giver (--given-by MEMBER): Those that this member or person gave, in place of MEMBER.
        state (--state STATE): Only those that are open, accepted, blocked, done, failed or late.
        limit (--limit N): How many to list, 1 to 1000.
        after (--after BRIEF): The last brief of the page before.
    """


@operation(app, "retry", "board_move", show=_moved, read=lambda given: {**given, "move": "retry"})
def retry(options: ThreadsOptions, output: Output, brief: str = _ID) -> None:
    """Give a brief to its member again, after its turn failed or it got stuck.

    [bold]Example[/bold]

      worldagent board retry msg_0b7d6c1e
    """


@operation(app, "reassign", "board_move", show=_moved, read=lambda given: {**given, "move": "reassign"})
def reassign(options: ThreadsOptions, output: Output, brief: str = _ID, *, to: str) -> None:
    """Give a brief to another member, which must be a contact of the one that gave it.

    [bold]Example[/bold]

      worldagent board reassign msg_0b7d6c1e --to legal

    Args:
        to (--to MEMBER): The member that gets it.
    """


@operation(app, "close", "board_move", show=_moved, read=lambda given: {**given, "move": "close"})
def close(options: ThreadsOptions, output: Output, brief: str = _ID, *, reason: str) -> None:
    """Close a brief as failed. Its member is told if it has begun.

    [bold]Example[/bold]

      worldagent board close msg_0b7d6c1e --reason 'The customer left.'

    Args:
        reason (--reason TEXT): Why.
    """
