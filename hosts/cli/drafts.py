"""The commands of `drafts`: templates that members propose, and that a person approves. None needs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .options import ThreadsOptions, argument, flag, option
from .output import Output, table
from .society import open_society

if TYPE_CHECKING:
    from ...members.data.workspace import RoleTemplateDraft

_COLUMNS: Final = ("ID", "TEMPLATE", "NAME", "PROPOSED BY", "STATUS")
_ID: Final = argument("DRAFT", "The id of the draft, as `drafts list` shows it.")

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _drafts() -> None:
    """Drafts: templates that members propose. No member can be made of one before you approve it.

    [bold]Example[/bold]

      worldagent drafts list
    """


@command(app, "list")
async def list_drafts(
    options: ThreadsOptions, output: Output, every: bool = flag("--all", "Also those that were approved or rejected.")
) -> None:
    """List the drafts that wait for you.

    [bold]Example[/bold]

      worldagent drafts list --all
    """
    async with open_society(options) as society:
        found = await society.drafts.list(status=None if every else "pending_review")
    rows = [
        (each.id, each.template.template_id, each.template.name_pattern, each.proposed_by, each.status)
        for each in found
    ]
    output.result({"drafts": [_record(each) for each in found]}, table(_COLUMNS, rows) if rows else "no draft waits")


@command(app, "show")
async def show(options: ThreadsOptions, output: Output, id: str = _ID) -> None:
    """Show a draft: its template, why it was proposed, and who decided about it.

    To change it, write the template of `--json` into a file and give that to `drafts approve --template @FILE`.

    [bold]Example[/bold]

      worldagent drafts show draft_123
    """
    async with open_society(options) as society:
        draft = await society.drafts.get(id)
    record = _record(draft)
    template = record.pop("template")
    lines = [f"{name}: {value}" for name, value in {**record, **template}.items() if value not in ("", None, [], {})]
    output.result({"draft": _record(draft)}, "\n".join(lines))


@command(app, "approve")
async def approve(
    options: ThreadsOptions,
    output: Output,
    id: str = _ID,
    spawner: list[str] | None = option(
        "ID", "A member that can make members of it. Repeatable. Without one, only you can."
    ),
    template: str | None = option("JSON|@FILE|-", "The template as you changed it, which replaces that of the draft."),
) -> None:
    """Add the template of a draft to the workspace. It never allows more than the member that proposed it may.

    [bold]Example[/bold]

      worldagent drafts approve draft_123 --spawner cro
    """
    from ...members.life.drafts import template_of
    from .sources import json_object, text

    given = None if template is None else template_of(json_object("--template", text("--template", template)))
    async with open_society(options) as society:
        made = await society.drafts.approve(id, template=given, allowed_spawners=spawner or None)
    who = ", ".join(made.allowed_spawners) or "you"
    output.result({"approved": made.template_id}, f"{made.template_id} can be used by {who}")


@command(app, "reject")
async def reject(
    options: ThreadsOptions, output: Output, id: str = _ID, reason: str = option("TEXT", "Why.", default="")
) -> None:
    """Reject a draft. It is kept and can never be used.

    [bold]Example[/bold]

      worldagent drafts reject draft_123 --reason 'The BDR does this already.'
    """
    async with open_society(options) as society:
        await society.drafts.reject(id, reason=reason)
    output.result({"rejected": id}, f"{id} was rejected")


def _record(draft: RoleTemplateDraft) -> dict[str, Any]:
    from ...core.checks import to_json

    record: dict[str, Any] = to_json(draft)
    return record
