"""Workers that are killed at random instants while they run submitted tasks, and started again.

As a program it submits so many tasks, kills so many workers, lets the rest finish, and prints one JSON object with what
came of the tasks and their effects. Each process is a fork of this one, which has everything loaded.
"""

import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import Said, open_pauses
from support.databases import Engine, made, removed
from support.kill_points import bare_agent
from support.processes import be_program, forked_result, lines, started
from worldagent import WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.core.pauses import Happened, RunAgain
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.scheduling import Queue, QueueWorker, StartTask
from worldagent.testing import ScriptedLM

SPAN = 1.0  # a worker is killed at most so many seconds after the last one
_EFFECTS, _NOTES, _TAKEN = "effects", "notes", "taken"
_TOOK = re.compile(r"took over (\d+) turns of \S+-(\d+)-\w+, which")


class Job(BaseModel):
    name: str


async def _job(params: Job, ctx: TaskContext) -> Said:
    """An effect that cannot be taken back, and one whose receiver knows its key."""
    await ctx.call("put", {"what": params.name})
    return Said(text=await ctx.call("note", {"what": params.name}))


def agent_of(home: Path) -> WorldAgent:
    (home / _NOTES).mkdir(exist_ok=True)
    effects = os.open(home / _EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def put(what: str) -> str:
        await asyncio.sleep(random.uniform(0, 0.02))
        os.write(effects, f"{what}\n".encode())
        await asyncio.sleep(random.uniform(0, 0.02))
        return what

    async def note(what: str) -> str:
        await asyncio.sleep(random.uniform(0, 0.02))
        with contextlib.suppress(FileExistsError):  # the receiver's part
            (home / _NOTES / what).touch(exist_ok=False)
        return what

    tools = [tool(risk="write")(put), tool(idempotent=True, risk="write")(note)]
    shapes, queue = [Shape("job", Job, Said, _job)], Queue(worker_concurrency=20)
    return bare_agent(home, ScriptedLM([]), tools=tools, shapes=shapes, queue=queue)


# --- the processes ----------------------------------------------------------------------------------------------------


def _submit(home: Path, tasks: int) -> float:
    """Submit the tasks; gives the seconds that took."""

    async def work() -> float:
        async with agent_of(home) as agent:
            began = time.monotonic()
            for number in range(tasks):
                job = StartTask("job", {"name": f"t{number}"})
                await agent.submit(job, thread=agent.thread(f"t{number}"), key="job", unattended="pause")
            return time.monotonic() - began

    return asyncio.run(work())


def _work(home: Path) -> None:
    """Be a worker, for ever."""

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with (home / _TAKEN).open("a") as out:
                out.write(f"{time.time()} {record.getMessage()}\n")

    async def work() -> None:
        async with agent_of(home) as agent:
            await QueueWorker(agent).run()

    logging.getLogger("worldagent.worker").addHandler(Told())
    asyncio.run(work())


def _finish(home: Path, tasks: int) -> dict[str, Any]:
    """Wait for all tasks, answer what is uncertain, and say what came of them."""

    async def one(agent: WorldAgent, number: int) -> tuple[str, str, bool]:
        thread = agent.thread(f"t{number}")
        submission = agent.submission(thread, "job")
        turn = await submission.wait()
        uncertain = turn.status == "paused"
        while turn.status == "paused":
            pauses = await open_pauses(thread)
            assert [(pause.kind, pause.function) for pause in pauses] == [("uncertain", "put")], pauses
            happened = f"t{number}" in lines(home / _EFFECTS)
            turn = await thread.resume({each.id: Happened(f"t{number}") if happened else RunAgain() for each in pauses})
        return turn.status, turn.id, uncertain

    async def work() -> dict[str, Any]:
        async with agent_of(home) as agent:
            ends = [await one(agent, number) for number in range(tasks)]
            turns = await inside(agent).stores.database.read(lambda tx: tx.execute("SELECT COUNT(*) FROM wa_turn"))
        return {
            "statuses": Counter(status for status, _, _ in ends),
            "ids": len({turn for _, turn, _ in ends}),
            "turns": turns[0][0],
            "uncertain": sum(uncertain for _, _, uncertain in ends),
        }

    return asyncio.run(work())


class Workers:
    """The worker processes of a home."""

    def __init__(self, home: Path, count: int) -> None:
        self._home = home
        self.alive = [started(lambda: _work(home)) for _ in range(count)]
        self.killed: dict[int, float] = {}

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        self.killed[child] = time.time()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == -signal.SIGKILL, f"it ended with {code}"

    def kill_one(self, source: random.Random) -> None:
        """Kill one and start another."""
        place = source.randrange(len(self.alive))
        self.kill(self.alive[place])
        self.alive[place] = started(lambda: _work(self._home))

    def takeovers(self) -> list[tuple[float, int]]:
        """The seconds from each kill until its turns were in the queue again, and how many they were."""
        found: list[tuple[float, int]] = []
        for line in lines(self._home / _TAKEN):
            told = _TOOK.search(line)
            if told and int(told[1]) and int(told[2]) in self.killed:
                found.append((float(line.split()[0]) - self.killed[int(told[2])], int(told[1])))
        return found


def killed(engine: Engine, workers: int, tasks: int, kills: int) -> Iterator[dict[str, Any]]:
    """Kill so many workers while they run so many tasks, let the rest finish, and say what came of the effects."""
    seed = int.from_bytes(os.urandom(4), "big")
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        code, submitting = forked_result(lambda: _submit(home, tasks))
        assert code == 0
        began = time.monotonic()
        crowd = Workers(home, workers)
        try:
            at = 0
            while len(crowd.killed) < kills and at < tasks * 0.95:
                time.sleep(source.uniform(0, SPAN))
                if (now := len(lines(home / _EFFECTS))) > at:  # on a busy machine a worker needs long to begin
                    at = now
                    crowd.kill_one(source)
            code, told = forked_result(lambda: _finish(home, tasks))
            assert code == 0, f"seed {seed}: not all ended"
            seconds, struck = time.monotonic() - began, len(crowd.killed)
        finally:
            for child in crowd.alive:
                crowd.kill(child)
        effects = Counter(lines(home / _EFFECTS))
        notes = {path.name for path in (home / _NOTES).iterdir()}
        taken = crowd.takeovers()
        waits = [seconds for seconds, _ in taken] or [0.0]
        removed(home)
    expected = {f"t{number}" for number in range(tasks)}
    yield {
        "seed": seed,
        "kills": struck,
        "submitting": round(submitting, 2),
        "seconds": round(seconds, 1),
        **told,
        "lost": sorted(expected - set(effects)),
        "repeated": sorted(name for name, count in effects.items() if count > 1),
        "notes": notes == expected,
        "taken_over": sum(count for _, count in taken),
        "median_seconds": round(statistics.median(waits), 2),
        "most_seconds": round(max(waits), 2),
    }


if __name__ == "__main__":
    be_program(killed)
