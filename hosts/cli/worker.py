"""The command `worker`: runs submitted turns and fires schedules until it is stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from .command import bad_usage, command, until_sigterm
from .exits import TERMINATED
from .options import HOME_ROLES, AgentOptions, flag, option, option_group
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...agent import WorldAgent
    from ...scheduling import Worker

_RUNS = "What it runs"

app = typer.Typer()


@option_group
class WorkerOptions(AgentOptions):
    """The options of `worker`."""

    concurrency: int | None = option(
        "N", "How many submitted turns each worker runs at once. Default: as the app's Queue says.", _RUNS
    )
    queue_concurrency: int | None = option(
        "N", "How many all workers together run at once. Default: as the app's Queue says.", _RUNS
    )
    no_schedules: bool = flag("--no-schedules", "Fire no schedules.", _RUNS)


@app.command(rich_help_panel="Servers")
@command(home_roles=HOME_ROLES)
async def worker(options: WorkerOptions, output: Output, home_roles: bool) -> int | None:
    """Run the submitted turns of the workspace, and fire its schedules, until it is stopped.

    Several workers can run on one database. Submitted turns need an agent with a queue, from --app.

    At SIGTERM or Ctrl+C it takes no more turns and gives the running ones 20 seconds. What then still runs stops at its
    next step, and another worker resumes it.

    [bold]Examples[/bold]

      worldagent worker --app shop:agent

      worldagent worker --app shop:agent --concurrency 50 --no-schedules
    """
    done = await until_sigterm(_work(options, output, home_roles=home_roles))
    return TERMINATED if done is None else None


async def _work(options: WorkerOptions, output: Output, *, home_roles: bool) -> bool:
    from ...scheduling import Schedules
    from .agents import open_shared

    async with open_shared(options, output, home_roles=home_roles) as agent:
        worker = _worker(agent, options)
        runs: list[Coroutine[None, None, None]] = [] if worker is None else [worker.run()]
        told = [] if worker is None else [f"submitted turns, as {worker.id}"]
        if not options.no_schedules:
            schedules = Schedules(agent)
            runs.append(schedules.run())
            told.append(f"{len(await schedules.list())} schedules")
        output.note(f"worker of the workspace {agent.workspace!r}: {', '.join(told)}")
        try:
            await _together(runs)
        except asyncio.CancelledError:
            await agent.drain()
            if worker is not None:
                output.note(f"worker ended: {worker.counts}")
            raise
    return True


def _worker(agent: WorldAgent, options: WorkerOptions) -> Worker | None:
    from ...scheduling import Worker

    if agent.queue is not None:
        return Worker(agent, concurrency=options.concurrency, queue_concurrency=options.queue_concurrency)
    needed = {"--concurrency": options.concurrency, "--queue-concurrency": options.queue_concurrency}
    given = [name for name, value in needed.items() if value is not None] + ["--no-schedules"] * options.no_schedules
    if given:
        raise bad_usage(
            f"{given[0]} is for an agent with a queue",
            remedy="name one with --app, made with WorldAgent(queue=Queue())",
        )
    return None


async def _together(runs: list[Coroutine[None, None, None]]) -> None:
    """Run all until one fails or this is cancelled; the others have then ended, too."""
    tasks = [asyncio.ensure_future(run) for run in runs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
