"""The agent of `inbox.py`, and the process that steers its turns from beside it.

As a program, `python -m worldagent.benchmarks._inbox_worker HOME [URL]` steers the thread that each line of its input
names, and prints the clock before and after, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import dspy

from worldagent import Policy, Rule, Settings, Storage, WorldAgent
from worldagent.benchmarks._stubs import answering, constant_lm
from worldagent.harness import Function

WORD = "Rather the year 813."


def agent_of(home: Path, url: str | None, lm: dspy.LM | None = None, *tools: Function) -> WorldAgent:
    """The agent; without a model it runs no turn."""
    return WorldAgent(
        "bench",
        lm=lm or constant_lm(answering),
        tools=tools,
        policy=Policy(rules=(Rule(decision="approve", function="wait"),)) if tools else Policy(),
        storage=Storage(home=home, url=url),
        settings=Settings(trace=False, begin_queued=bool(tools)),
    )


async def _steer(home: Path, url: str | None) -> None:
    async with agent_of(home, url) as agent:
        print("ready", flush=True)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            began = time.perf_counter()
            await agent.thread(name).steer(WORD)
            print(began, time.perf_counter(), flush=True)


if __name__ == "__main__":
    asyncio.run(_steer(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
