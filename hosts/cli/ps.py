"""The command `ps`: the running sidecars and turns of a home. It reads files and the database, and needs no model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .command import command, storage_of
from .options import HOME, JSON_RESULT
from .output import Output, table, time_text

if TYPE_CHECKING:
    from ...agent.threads import ThreadState

_SIDECARS = ("ADDRESS", "STATE", "SINCE", "WORKSPACES", "PID")
_TURNS = ("WORKSPACE", "THREAD", "STATUS", "SINCE", "ACCOUNT", "TURN")
_LIMITS = [40] * 5  # terminal cells of columns whose texts a person chose

app = typer.Typer()


@app.command(rich_help_panel="Servers")
@command(home=HOME, json=JSON_RESULT)
async def ps(output: Output, home: Path | None, json: bool) -> None:
    """List the running sidecars of this home, and the running and interrupted turns of all workspaces.

    It shows no text of a turn and no token. [bold]worldagent threads cancel[/bold] ends a turn, and [bold]worldagent
    resume[/bold] resumes an interrupted one.

    [bold]Examples[/bold]

      worldagent ps

      worldagent ps --json
    """
    from ..service.home import running_turns
    from .sidecars import running_sidecars

    storage = storage_of(home)
    sidecars = running_sidecars(storage.sidecars)
    turns = await running_turns(storage)
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
        tables.append(table(_SIDECARS, served, widths=(sys.maxsize, *_LIMITS)))  # an address is shown in full
    if turns:
        running = [
            (workspace, one.thread, one.status, time_text(one.since), one.account or "", one.turn_id)
            for workspace, one in turns
        ]
        tables.append(table(_TURNS, running, widths=_LIMITS))
    output.result(shown, "\n\n".join(tables) or None)
    if output.form == "text" and not sidecars:
        output.note("no sidecar of this home runs")
    if output.form == "text" and not turns:
        output.note("no turn runs")


def _turn_object(workspace: str, state: ThreadState) -> dict[str, Any]:
    found = state.to_json()
    shown = {name: found[name] for name in ("thread", "kind", "account", "channel", "status", "since")}
    return {"workspace": workspace, "turn": found["turn_id"], **shown}
