"""The command `worker`: runs submitted turns and fires schedules until it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import typer

from .command import bad_usage, command, until_sigterm
from .exits import TERMINATED
from .options import HOME_ROLES, AgentOptions, option_group
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...agent import WorldAgent
    from ...members.gateway import Gateway
    from ...scheduling import QueueWorker

READY_SECONDS = 2.0  # seconds that the database and the queue have to answer

app = typer.Typer()


@option_group
class WorkerOptions(AgentOptions):
    """The options of `worker`.

    Attributes:
        concurrency (--concurrency N; What it runs): How many submitted turns each worker runs at once. Default: as the
            app's Queue says.
        queue_concurrency (--queue-concurrency N; What it runs): How many all workers together run at once. Default: as
            the app's Queue says.
        port (--port [HOST:]PORT; How it is reached): Answer at /health, /ready and /metrics there. Default host:
            127.0.0.1. Port 0 is a free one.
        no_schedules (--no-schedules; What it runs): Fire no schedules.
    """

    concurrency: int | None = None
    queue_concurrency: int | None = None
    port: str | None = None
    no_schedules: bool = False


@command(app, panel="Servers")
async def worker(options: WorkerOptions, output: Output, home_roles: bool = HOME_ROLES) -> int | None:
    """Run the submitted turns of the workspace, and fire its schedules, until it is stopped.

    It also begins the messages that are queued on threads, delivers the messages and handles the events of members, if
    the agent has a society.

    Several workers can run on one database. Submitted turns need an agent with a queue, from --app.

    At SIGTERM or Ctrl+C it takes no more turns and gives the running ones 20 seconds. What then still runs stops at its
    next step, and another worker resumes it.

    [bold]Examples[/bold]

      worldagent worker --app shop:agent

      worldagent worker --app shop:agent --concurrency 50 --no-schedules

      worldagent worker --app shop:agent --port 9100
    """
    done = await until_sigterm(_work(options, output, home_roles=home_roles))
    return TERMINATED if done is None else None


async def _work(options: WorkerOptions, output: Output, *, home_roles: bool) -> bool:
    from ...agent.runtime.inside import inside
    from ...members.gateway import Gateway
    from ...scheduling import Schedules
    from ..service.members import society_of
    from .agents import open_shared

    async with open_shared(options, output, home_roles=home_roles) as agent:
        worker, gateway = _worker(agent, options), None
        runs: list[Coroutine[None, None, None]] = [] if worker is None else [worker.run()]
        runs.append(inside(agent).pending.watch(agent.workspace))
        work = [] if worker is None else [f"submitted turns, as {worker.id}"]
        if not options.no_schedules:
            schedules = Schedules(agent)
            runs.append(schedules.run())
            work.append(f"{len(await schedules.list())} schedules")
        if society_of(agent) is not None:
            gateway = Gateway(agent)
            runs.append(gateway.run())
            work.append("messages and events of members")
        work.append("queued messages")
        output.note(f"worker of the workspace {agent.workspace!r}: {', '.join(work)}")
        async with AsyncExitStack() as pages:
            if options.port is not None:
                await _open_pages(pages, options.port, _Report(agent, worker, gateway), output)
            try:
                await _together(runs, agent)
            except asyncio.CancelledError:
                await agent.drain()
                if worker is not None:
                    output.note(f"worker ended: {worker.counts}")
                raise
    return True


async def _open_pages(stack: AsyncExitStack, port: str, report: _Report, output: Output) -> None:
    from ..serving import Address, serving_pages

    address = Address.parse(port if ":" in port else f"127.0.0.1:{port}", option="--port")
    found = await stack.enter_async_context(serving_pages(report, address))
    output.note(f"health: http://{found.authority}:{found.port}/health")


class _Report:
    """What the pages of a worker say, in numbers alone."""

    def __init__(self, agent: WorldAgent, worker: QueueWorker | None, gateway: Gateway | None) -> None:
        self._agent, self._worker, self._gateway = agent, worker, gateway

    def health(self) -> dict[str, Any]:
        """Return what the worker has done so far, and how many stalls of members there are."""
        stalls = {} if self._gateway is None else self._gateway.stall_counts()
        if self._worker is None:
            return {"draining": False, **stalls}
        counts = self._worker.counts
        return {
            "draining": self._worker.draining,
            "turns": counts.running,
            "queue_waiting": counts.waiting,
            "turns_begun_total": counts.begun,
            "turns_ended_total": counts.ended,
            "turns_failed_total": counts.failed,
            "turns_taken_over_total": counts.taken_over,
            **stalls,
        }

    async def ready(self) -> dict[str, Any]:
        """Return whether it takes turns, and its database and queue answer."""
        from ...agent.runtime.inside import inside
        from ...core.errors import WorldAgentError

        ready = self._worker is None or not self._worker.draining
        try:
            async with asyncio.timeout(READY_SECONDS):
                await inside(self._agent).stores.database.read(lambda transaction: transaction.execute("SELECT 1"))
                if self._worker is not None:
                    await self._worker.waiting()
        except (WorldAgentError, TimeoutError):
            ready = False
        return {"ready": ready, **self.health()}


def _worker(agent: WorldAgent, options: WorkerOptions) -> QueueWorker | None:
    from ...scheduling import QueueWorker
    from ...scheduling.queue import queue_of

    if queue_of(agent) is not None:
        return QueueWorker(agent, concurrency=options.concurrency, queue_concurrency=options.queue_concurrency)
    needed = {"--concurrency": options.concurrency, "--queue-concurrency": options.queue_concurrency}
    given = [name for name, value in needed.items() if value is not None] + ["--no-schedules"] * options.no_schedules
    if given:
        raise bad_usage(
            f"{given[0]} is for an agent with a queue",
            remedy="name one with --app, made with WorldAgent(queue=Queue())",
        )
    return None


async def _together(runs: list[Coroutine[None, None, None]], agent: WorldAgent) -> None:
    """Run all until one fails or this is cancelled; the others have then ended, too."""
    from ...agent.runtime.inside import inside
    from ...scheduling.worker import DRAIN_SECONDS

    tasks = [asyncio.ensure_future(run) for run in runs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with inside(agent).stores.database.given_up_after(DRAIN_SECONDS):
            await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
