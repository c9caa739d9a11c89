"""Agents with a queue, and workers in this process and in others."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.agents import scripted_agent
from worldagent import WorldAgent
from worldagent.agent.submitting import Submission
from worldagent.scheduling import Queue, StartMessage, Worker
from worldagent.testing import assert_no_role_leak

HELLO = StartMessage("Hello.")


def queued_agent(home: Path, lm: Any, *, queue: Queue | None = None, **more: Any) -> WorldAgent:
    """An agent with a queue."""
    return scripted_agent(home, lm, queue=queue or Queue(), **more)


@asynccontextmanager
async def working(home: Path, lm: Any, **more: Any) -> AsyncGenerator[tuple[WorldAgent, Worker]]:
    """An agent with a queue, and a worker of it in this process."""
    async with queued_agent(home, lm, **more) as agent:
        worker = Worker(agent)
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
