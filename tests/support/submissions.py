"""Agents with a queue, and workers in this process and in others."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.agents import scripted_agent
from support.processes import call_of, start_script, wait_for_kill
from worldagent import WorldAgent
from worldagent.agent.submitting import Submission
from worldagent.scheduling import Queue, QueueWorker, StartMessage
from worldagent.testing import ScriptedLM, assert_no_role_leak

HELLO = StartMessage("Hello.")


def queued_agent(home: Path, lm: Any, *, queue: Queue | None = None, **more: Any) -> WorldAgent:
    """An agent with a queue."""
    return scripted_agent(home, lm, queue=queue or Queue(), **more)


@asynccontextmanager
async def working(home: Path, lm: Any, **more: Any) -> AsyncGenerator[tuple[WorldAgent, QueueWorker]]:
    """An agent with a queue, and a worker of it in this process."""
    async with queued_agent(home, lm, **more) as agent:
        worker = QueueWorker(agent)
        async with worker.running(drain=0):
            yield agent, worker


async def becomes(submission: Submission, status: str, limit: float = 20) -> None:
    """Wait until a submission has this status."""
    for _ in range(int(limit / 0.02)):
        if await submission.status() == status:
            return
        await asyncio.sleep(0.02)
    assert await submission.status() == status


def assert_no_role_in_queue(home: Path, canaries: Sequence[str]) -> None:
    """Search all tables of the queue, which must hold the start `HELLO`, and of the agent."""
    held: list[Any] = [home / "agent.db", home / "queue.db"]
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import table_bytes

        tables = table_bytes(url)
        assert tables.keys() > {"workflow_status", "operation_outputs", "queues"}
        assert sum(HELLO.message.encode() in content for content in tables.values()) > 1
        held = [tables]
    else:
        assert HELLO.message.encode() in b"".join(file.read_bytes() for file in home.glob("queue.db*"))
    assert_no_role_leak(held, canaries)


async def hanging(home: Path, *, concurrency: int) -> asyncio.subprocess.Process:
    """Start another process with a worker whose model never answers. It prints `there` for each turn that asks it."""
    return await start_script(call_of(hang, home, concurrency))


async def hang(home: Path, concurrency: int) -> None:
    """What `hanging` runs."""

    async def reply(_: Any) -> dict[str, str]:
        await wait_for_kill()
        return {"reply": "Never."}

    async with queued_agent(home, ScriptedLM(reply)) as agent:
        await QueueWorker(agent, concurrency=concurrency).run()


async def two_looks(worker: QueueWorker) -> None:
    """Return after the worker has looked for dead ones twice, the second time from the beginning."""
    wanted = worker.counts.looks + 2
    for _ in range(2000):
        if worker.counts.looks >= wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the worker does not look")
