"""The commands of `budgets`: what members can use, what they used, and what waits for more. None needs a model."""

from __future__ import annotations

from typing import Any, Final

import typer

from .operating import operation
from .options import ThreadsOptions, argument
from .output import Output, table

_COLUMNS: Final = ("HOLDER", "USED", "UNTIL")
_HELD: Final = ("WAITS", "MEMBER", "BUDGET", "SINCE")
_MEMBER: Final = argument("MEMBER", "The id of the member, or another holder as `budgets list` shows it.")
_WORK: Final = argument("WORK", "The id of the message or the event, as `budgets list` shows it.")

app = typer.Typer(name="budgets", no_args_is_help=True)


@app.callback()
def _budgets() -> None:
    """Budgets: what members can use in turns, calls, tokens and dollars, and what waits for more.

    [bold]Example[/bold]

      worldagent budgets list
    """


def _table(found: Any) -> str:
    budgets = [(each.holder, each.text, each.until or "") for each in found.budgets]
    held = [(each.work, each.member, each.holder, each.since) for each in found.held]
    shown = table(_COLUMNS, budgets) if budgets else "no member has limits"
    return shown + (f"\n\n{table(_HELD, held)}" if held else "")


@operation(app, "list", "budget_list", show=_table)
def list_budgets(options: ThreadsOptions, output: Output) -> None:
    """List the budgets with what is used of them, and the work that waits because one is reached.

    [bold]Example[/bold]

      worldagent budgets list --workspace studio
    """


@operation(app, "extend", "budget_extend", show=lambda found: f"{found.budget.holder}: {found.budget.text}")
def extend(
    options: ThreadsOptions,
    output: Output,
    member: str = _MEMBER,
    turns: int | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    cost: float | None = None,
    period: str = "life",
) -> None:
    """Replace the limits of a member, within those above it. Work that waits for them goes on.

    [bold]Example[/bold]

      worldagent budgets extend cro --tokens 200000 --period day

    Args:
        turns (--turns N): Turns. Each limit that you leave out is none.
        calls (--calls N): Calls of models.
        tokens (--tokens N): Tokens of models.
        cost (--cost DOLLARS): US dollars.
        period (--period PERIOD): day, week, month or life, in UTC.
    """


@operation(app, "end", "budget_end", show=lambda found: f"{found.ended} was ended")
def end(options: ThreadsOptions, output: Output, work: str = _WORK) -> None:
    """End a message or an event that waits because a budget is reached.

    [bold]Example[/bold]

      worldagent budgets end msg_0b7d6c1e
    """
