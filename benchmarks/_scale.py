"""A process of `scale.py` that runs concurrent turns on a shared database for some seconds.

Run as `python -m worldagent.benchmarks._scale JOB`, where `JOB` is JSON. It prints a line when it is ready, starts at a
line on standard input, and prints the JSON of `Share`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from worldagent import Storage, WorldAgent
from worldagent.benchmarks._stubs import QUESTION, answering, constant_lm


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a process does.

    Attributes:
        name: Its name, in the names of its threads.
        home: Its home.
        url: The Postgres database; None is SQLite in the home.
        seconds: How long it begins turns.
        at_once: How many run at once.
        delay: Seconds that a model call takes.
    """

    name: str
    home: str
    url: str | None
    seconds: float
    at_once: int
    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a process did.

    Attributes:
        turns: How many turns ended.
        seconds: How long that took.
        cpu: Its CPU seconds meanwhile.
        memory: Bytes of memory at the peak.
    """

    turns: int
    seconds: float
    cpu: float
    memory: int


async def turns(load: Load) -> Share:
    """Run turns, each on a thread of its own."""
    numbers, ended = count(), 0
    storage = Storage(home=Path(load.home), url=load.url)
    async with WorldAgent("bench", lm=constant_lm(answering, delay=load.delay), storage=storage) as agent:
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)

        async def one() -> None:
            await agent.thread(f"{load.name}-{next(numbers)}").converse(QUESTION)

        async def lane(until: float) -> None:
            nonlocal ended
            while time.monotonic() < until:
                await one()
                ended += 1

        await asyncio.gather(*(one() for _ in range(4)))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(lane(began + load.seconds) for _ in range(load.at_once)))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Share(turns=ended, seconds=time.monotonic() - began, cpu=time.process_time() - cpu, memory=memory)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(turns(Load(**json.loads(sys.argv[1])))))))
