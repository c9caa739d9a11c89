"""What a submitted turn costs: until its handle is back and end to end, against bare DBOS, and with more workers.

Run `python benchmarks/submissions.py [--quick] [--json]`. It prints a table and, last, one JSON line; README.md
explains both.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from worldagent import WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.benchmarks._bare_dbos import Bare, until_over
from worldagent.benchmarks._measure import Report, Row, interleaved, main
from worldagent.benchmarks._postgres import server
from worldagent.benchmarks._stubs import QUESTION
from worldagent.benchmarks._submission_worker import CONCURRENCY, LATENCY, agent_of
from worldagent.scheduling import QueueWorker, StartMessage

AT_ONCE = 50  # how many turns or workflows run at once, in each case
WORKERS = (1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    warm: int
    calls: int
    turns: int
    scaled: int


FULL = Sizes(rounds=7, warm=1, calls=60, turns=200, scaled=200)
QUICK = Sizes(rounds=1, warm=0, calls=3, turns=10, scaled=10)


async def submitting(agent: WorldAgent, bare: Bare, sizes: Sizes, name: str) -> list[Row]:
    """Until the handle is back, against DBOS's enqueue of the same text."""
    numbers = itertools.count()
    start = {"start": {"message": QUESTION}, "thread": "t", "account": None, "key": "k", "request": "0" * 32}
    costs = await interleaved(
        {
            "ours": lambda: agent.submit(StartMessage(QUESTION), thread=agent.thread(f"s{next(numbers)}")),
            "bare": lambda: bare.enqueue(start),
        },
        rounds=sizes.rounds,
        calls=sizes.calls,
    )
    return [
        Row(key=f"{name}_submit_wall_ms", value=1e3 * costs.wall("ours"), unit="ms"),
        Row(key=f"{name}_enqueue_wall_ms", value=1e3 * costs.wall("bare"), unit="ms"),
        Row(key=f"{name}_submit_speed", value=costs.wall_ratio("bare", "ours"), least=0.7),
    ]


async def end_to_end(place: Callable[[], tuple[Path, str | None]], sizes: Sizes, name: str) -> list[Row]:
    """From the first submission to the end of the last turn, against plain turns and bare workflows, one by one."""
    taken: dict[str, list[float]] = {"ours": [], "plain": [], "bare": []}
    for number in range(sizes.rounds + sizes.warm):
        found = {
            "plain": await _plain(place, sizes.turns),
            "bare": await _bare(place, sizes.turns),
            "ours": await _ours(place, sizes.turns),
        }
        for case, seconds in found.items():
            if number >= sizes.warm:  # the first round loads everything
                taken[case].append(seconds)
    per_turn = {case: 1e3 * median(seconds) / sizes.turns for case, seconds in taken.items()}
    ratios = [
        ours / (plain + bare) for ours, plain, bare in zip(*(taken[c] for c in ("ours", "plain", "bare")), strict=True)
    ]
    return [
        *(Row(key=f"{name}_{case}_wall_ms", value=value, unit="ms") for case, value in per_turn.items()),
        Row(key=f"{name}_end_to_end", value=median(ratios), aim=1.3, spread=(min(ratios), max(ratios))),
    ]


async def _plain(place: Callable[[], tuple[Path, str | None]], turns: int) -> float:
    free = asyncio.Semaphore(AT_ONCE)
    async with agent_of(*place(), delay=0, concurrency=AT_ONCE) as agent:

        async def one(number: int) -> None:
            async with free:
                await agent.thread(f"t{number}").converse(QUESTION, key="k", unattended=True)

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(turns)))
        return time.perf_counter() - began


async def _bare(place: Callable[[], tuple[Path, str | None]], turns: int) -> float:
    home, url = place()
    home.mkdir(parents=True, exist_ok=True)
    bare = Bare(home / "bare.db" if url is None else url)
    await bare.launch(AT_ONCE)
    await asyncio.sleep(2)  # DBOS sees a new queue once a second
    began = time.perf_counter()
    for number in range(turns):
        await bare.enqueue({"start": {"message": QUESTION}, "key": str(number)})
    ended = await until_over(turns)
    await bare.destroy()
    bare.close()
    return ended - began


async def _ours(place: Callable[[], tuple[Path, str | None]], turns: int) -> float:
    async with agent_of(*place(), delay=0, concurrency=AT_ONCE) as agent, QueueWorker(agent).running(drain=0):
        await asyncio.sleep(2)
        began = time.perf_counter()
        for number in range(turns):
            await agent.submit(StartMessage(QUESTION), thread=agent.thread(f"t{number}"))
        return await until_over(turns) - began


async def scaling(place: Callable[[], tuple[Path, str | None]], sizes: Sizes, name: str) -> list[Row]:
    """The same turns with one worker and with four, each of which runs a few at once."""
    found: dict[int, float] = {}
    for count in WORKERS:
        home, url = place()
        async with agent_of(home, url, delay=LATENCY, concurrency=CONCURRENCY) as agent:
            await agent.submit(StartMessage(QUESTION), thread=agent.thread("first"))
            with workers(home, url, count):
                await _done(agent, 1)
                began = time.perf_counter()
                for number in range(sizes.scaled):
                    await agent.submit(StartMessage(QUESTION), thread=agent.thread(f"t{number}"))
                await _done(agent, sizes.scaled + 1)
                found[count] = sizes.scaled / (time.perf_counter() - began)
    few, many = WORKERS
    return [
        *(Row(key=f"{name}_turns_a_second_{count}", value=found[count], unit="/s") for count in WORKERS),
        Row(key=f"{name}_scaling", value=found[many] / found[few], note=f"{many} workers over {few}"),
    ]


@contextmanager
def workers(home: Path, url: str | None, count: int) -> Generator[None]:
    """Run so many worker processes while the block runs."""
    argv = [sys.executable, "-P", "-m", "worldagent.benchmarks._submission_worker", str(home), url or ""]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n", "a worker did not start"
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


async def _done(agent: WorldAgent, count: int) -> None:
    """Wait until so many turns are done."""
    for _ in itertools.count():
        if (await inside(agent).stores.database.read(_count))[0][0] >= count:
            return
        await asyncio.sleep(0.02)


def _count(transaction: Any) -> list[tuple[int]]:
    found: list[tuple[int]] = transaction.execute("SELECT COUNT(*) FROM wa_turn WHERE status='done'")
    return found


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    sizes = QUICK if report.quick else FULL
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        databases = opened.enter_context(server())
        numbers = itertools.count()
        engines: dict[str, Callable[[], tuple[Path, str | None]]] = {
            "sqlite": lambda: (folder / f"home{next(numbers)}", None),
            "postgres": lambda: (folder / f"home{next(numbers)}", _database(databases, next(numbers))),
        }
        for name, place in engines.items():
            if name == "postgres" and databases is None:
                report.section("Postgres", [Row(key=key, value=None, note="it is not installed") for key in _KEYS])
                continue
            async with _submitter(place) as (agent, bare):
                report.section(f"Submitting: {name}", await submitting(agent, bare, sizes, name))
            report.section(f"{sizes.turns} turns, {AT_ONCE} at once: {name}", await end_to_end(place, sizes, name))
            report.section(f"Model calls of {LATENCY:g} s: {name}", await scaling(place, sizes, name))


_KEYS = tuple(
    f"postgres_{key}"
    for key in (
        *("submit_wall_ms", "enqueue_wall_ms", "submit_speed", "ours_wall_ms", "plain_wall_ms", "bare_wall_ms"),
        *("end_to_end", "turns_a_second_1", "turns_a_second_4", "scaling"),
    )
)


@asynccontextmanager
async def _submitter(place: Callable[[], tuple[Path, str | None]]) -> AsyncGenerator[tuple[WorldAgent, Bare]]:
    home, url = place()
    bare_home, bare_url = place()
    bare_home.mkdir(parents=True, exist_ok=True)
    bare = Bare(bare_home / "bare.db" if bare_url is None else bare_url)
    async with agent_of(home, url, delay=0, concurrency=AT_ONCE) as agent:
        yield agent, bare
    bare.close()


def _database(databases: Any, number: int) -> str:
    import psycopg

    with psycopg.connect(databases.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE queue_{number}".encode())
    return str(databases.get_uri(f"queue_{number}"))


if __name__ == "__main__":
    main("submissions", "What a submitted turn costs, against bare DBOS, and with more workers.", run)
