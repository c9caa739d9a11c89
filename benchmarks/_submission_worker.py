"""A worker process of `submissions.py`: it says when it takes turns, and runs until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from worldagent import Settings, Storage, WorldAgent
from worldagent.benchmarks._stubs import answering, constant_lm
from worldagent.scheduling import Queue, QueueWorker

LATENCY = 0.2
CONCURRENCY = 5


def agent_of(home: Path, url: str | None, *, delay: float, concurrency: int) -> WorldAgent:
    """The agent of the benchmark, in any process."""
    return WorldAgent(
        "bench",
        lm=constant_lm(answering, delay=delay),
        storage=Storage(home=home, url=url),
        settings=Settings(trace=False),
        queue=Queue(worker_concurrency=concurrency),
    )


async def work(home: Path, url: str | None) -> None:
    async with agent_of(home, url, delay=LATENCY, concurrency=CONCURRENCY) as agent, QueueWorker(agent).running():
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2] or None))
