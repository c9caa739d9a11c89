"""Runs turns with random trees of calls in forks of a process that has everything loaded, and kills them there.

As a program it reads a line of JSON for each: which turn, and at which point the fork is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from support.house import ROOT
from support.loop_steps import Steps
from support.processes import clean_environment, forked
from support.trees import agent_of, answered, begun
from worldagent.core.errors import NothingToResume


class Forks:
    """A process that runs turns in forks of itself and has everything loaded."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "tests" / "support" / "tree_forks.py")],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(self, **order: Any) -> int:
        """Run a turn in a fork; gives how that ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


async def run_and_die(order: Mapping[str, Any]) -> str:
    """Begin or go on with the turn; killed at the point that is ordered, if it comes that far."""
    steps = Steps(order["at"], order["unit"], lambda: os.kill(os.getpid(), signal.SIGKILL))
    async with agent_of(Path(order["home"]), order["tree"], steps.passed) as agent:
        steps.watch()
        if order["begin"]:
            turn = await begun(agent, order["tree"], planned=order["planned"])
        else:
            answers = {pause_id: answered((kind, value)) for pause_id, (kind, value) in order["answers"].items()}
            try:
                turn = await agent.thread("t").resume(answers)
            except NothingToResume:
                return "nothing"
        return str(turn.status)


def run_order(line: str) -> None:
    """Run an order, as a line of JSON."""
    asyncio.run(run_and_die(json.loads(line)))


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{forked(partial(run_order, line))}\n")
        sys.stdout.flush()
