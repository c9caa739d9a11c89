"""The command `ps`: the running sidecars and turns of a home. It reads files and the database, and needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len

from .command import command
from .options import Home, JsonResult
from .output import Output, table, time_text

if TYPE_CHECKING:
    from ...agent.threads import ThreadState

_SIDECARS = ("ADDRESS", "STATE", "SINCE", "WORKSPACES", "PID")
_TURNS = ("WORKSPACE", "THREAD", "STATUS", "SINCE", "ACCOUNT", "TURN")
MAX_COLUMN_CELLS = 40  # terminal cells of a column whose texts a person chose

app = typer.Typer()


@app.command(rich_help_panel="Servers")
@command
async def ps(output: Output, home: Home = None, json: JsonResult = False) -> None:
    """List the running sidecars of this home, and the running and interrupted turns of all workspaces.

    It shows no text of a turn and no token. [bold]worldagent threads cancel[/bold] ends a turn, and [bold]worldagent
    resume[/bold] resumes an interrupted one.

    [bold]Examples[/bold]

      worldagent ps

      worldagent ps --json
    """
    from ...agent import Settings
    from ...storage import Storage
    from ..service.home import open_threads
    from .sidecars import running_sidecars

    storage = Settings().storage(Storage(home=home))
    sidecars = running_sidecars(storage.sidecars)
    turns: tuple[tuple[str, ThreadState], ...] = ()
    async with open_threads(storage) as threads:
        if threads is not None:
            turns = await threads.register.running()
    shown = {
        "sidecars": [sidecar.model_dump(mode="json") for sidecar in sidecars],
        "turns": [_turn_object(workspace, state) for workspace, state in turns],
    }
    tables: list[str] = []
    if sidecars:
        served = [
            (one.address or one.transport, one.state, time_text(one.since), ", ".join(one.workspaces), str(one.pid))
            for one in sidecars
        ]
        tables.append(_table(_SIDECARS, served, unlimited=1))
    if turns:
        running = [
            (workspace, one.thread, one.status, time_text(one.since), one.account or "", one.turn_id)
            for workspace, one in turns
        ]
        tables.append(_table(_TURNS, running))
    output.result(shown, "\n\n".join(tables) or None)
    if output.form == "text" and not sidecars:
        output.note("no sidecar of this home runs")
    if output.form == "text" and not turns:
        output.note("no turn runs")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, unlimited: int = 0) -> str:
    """Lay out a table with columns as wide as their cells. All but the first `unlimited` columns have a limit."""
    widths = [max(cell_len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    return table(
        head, rows, widths=[*widths[:unlimited], *(min(width, MAX_COLUMN_CELLS) for width in widths[unlimited:])]
    )


def _turn_object(workspace: str, state: ThreadState) -> dict[str, Any]:
    found = state.to_json()
    shown = {name: found[name] for name in ("thread", "kind", "account", "channel", "status", "since")}
    return {"workspace": workspace, "turn": found["turn_id"], **shown}
