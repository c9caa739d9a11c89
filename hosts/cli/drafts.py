"""The commands of `drafts`: templates that members propose, and that a person approves. None needs a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from .operating import json_read, operation
from .options import ThreadsOptions, argument
from .output import Output, lines_of, table

_COLUMNS: Final = ("ID", "TEMPLATE", "NAME", "PROPOSED BY", "STATUS")
_ID: Final = argument("DRAFT", "The id of the draft, as `drafts list` shows it.")

app = typer.Typer(name="drafts", no_args_is_help=True)


@app.callback()
def _drafts() -> None:
    """Drafts: templates that members propose. No member can be made of one before you approve it.

    [bold]Example[/bold]

      worldagent drafts list
    """


@operation(app, "list", "draft_list", show=lambda found: _table(found.drafts))
def list_drafts(options: ThreadsOptions, output: Output, every: bool = False) -> None:
    """List the drafts that wait for you.

    [bold]Example[/bold]

      worldagent drafts list --all

    Args:
        every (--all): Also those that were approved or rejected.
    """


@operation(
    app, "show", "draft_show", show=lambda found: lines_of({**found.draft, **found.draft["template"]}, "template")
)
def show(options: ThreadsOptions, output: Output, draft: str = _ID) -> None:
    """Show a draft: its template, why it was proposed, and who decided about it.

    To change it, write the template of `--json` into a file and give that to `drafts approve --template @FILE`.

    [bold]Example[/bold]

      worldagent drafts show draft_123
    """


@operation(
    app,
    "approve",
    "draft_approve",
    show=lambda found: f"{found.approved} can be used by {', '.join(found.spawners) or 'you'}",
    value=lambda found: {"approved": found.approved},
    read=lambda given: json_read(given, "template"),
)
def approve(
    options: ThreadsOptions,
    output: Output,
    draft: str = _ID,
    spawners: list[str] | None = None,
    template: str | None = None,
) -> None:
    """Add the template of a draft to the workspace. It never allows more than the member that proposed it may.

    [bold]Example[/bold]

      worldagent drafts approve draft_123 --spawner cro

    Args:
        spawners (--spawner ID): A member that can make members of it. Repeatable. Without one, only you can.
        template (--template JSON|@FILE|-): The template as you changed it, which replaces that of the draft.
    """


@operation(app, "reject", "draft_reject", show=lambda found: f"{found.rejected} was rejected")
def reject(options: ThreadsOptions, output: Output, draft: str = _ID, reason: str = "") -> None:
    """Reject a draft. It is kept and can never be used.

    [bold]Example[/bold]

      worldagent drafts reject draft_123 --reason 'The BDR does this already.'

    Args:
        reason (--reason TEXT): Why.
    """


def _table(drafts: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            each["id"],
            each["template"]["template_id"],
            each["template"]["name_pattern"],
            each["proposed_by"],
            each["status"],
        )
        for each in drafts
    ]
    return table(_COLUMNS, rows) if rows else "no draft waits"
