"""The command `ps`: the running sidecars, workers and turns of a home. It needs no model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .command import command, storage_of
from .options import HOME
from .output import Output, table, time_text

if TYPE_CHECKING:
    from ...agent.threads import ThreadState
    from ...memory.workers import WorkerRow

_SIDECARS = ("ADDRESS", "STATE", "SINCE", "WORKSPACES", "PID")
_WORKERS = (*("WORKSPACE", "WORKER", "STATE", "SINCE", "SEEN", "RUNNING", "ENDED", "FAILED", "HOST", "PID", "VERSION"),)
_TURNS = ("WORKSPACE", "THREAD", "STATUS", "SINCE", "ACCOUNT", "TURN")
_LIMITS = [40] * 5  # terminal cells of columns whose texts a person chose

app = typer.Typer()


@command(app, panel="Servers")
async def ps(output: Output, home: Path | None = HOME) -> None:
    """List the running sidecars of this home, and the workers and the running and interrupted turns of all workspaces.

    A worker that has died is listed until another one takes over its turns.

    It shows no text of a turn and no token. [bold]worldagent threads cancel[/bold] ends a turn, and [bold]worldagent
    resume[/bold] resumes an interrupted one.

    [bold]Examples[/bold]

      worldagent ps

      worldagent ps --json
    """
    from ..service.home import running_turns, running_workers
    from ..service.running import running_sidecars

    storage = storage_of(home)
    sidecars = running_sidecars(storage.sidecars)
    workers, turns = await running_workers(storage), await running_turns(storage)
    shown = {
        "sidecars": [sidecar.model_dump(mode="json") for sidecar in sidecars],
        "workers": [_worker_object(row, alive) for row, alive in workers],
        "turns": [_turn_object(workspace, state) for workspace, state in turns],
    }
    tables: list[str] = []
    if sidecars:
        served = [
            (one.address or one.transport, one.state, time_text(one.since), ", ".join(one.workspaces), str(one.pid))
            for one in sidecars
        ]
        tables.append(table(_SIDECARS, served, widths=(sys.maxsize, *_LIMITS)))  # an address is shown in full
    if workers:
        told = [(*map(str, _worker_object(row, alive).values()),) for row, alive in workers]
        tables.append(table(_WORKERS, told, widths=[40] * len(_WORKERS)))
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


def _worker_object(row: WorkerRow, alive: bool) -> dict[str, Any]:
    state = "alive" if alive else "dead"
    since = {"since": time_text(row.since), "seen": time_text(row.seen)}
    shown = {name: getattr(row, name) for name in ("running", "ended", "failed", "host", "pid", "version")}
    return {"workspace": row.workspace, "worker": row.id, "state": state, **since, **shown}


def _turn_object(workspace: str, state: ThreadState) -> dict[str, Any]:
    found = state.to_json()
    shown = {name: found[name] for name in ("thread", "kind", "account", "channel", "status", "since")}
    return {"workspace": workspace, "turn": found["turn_id"], **shown}
