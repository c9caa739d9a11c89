"""What several processes on one database do together, and what removing old rows costs the turns beside it.

Run `python benchmarks/scale.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from worldagent import Storage, WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._postgres import server
from worldagent.benchmarks._scale import Load, Share
from worldagent.benchmarks._stubs import QUESTION, answering, constant_lm
from worldagent.core import new_id, utc_text

PROCESSES = (1, 2, 4)
DELAY = 0.2
"""Seconds of a model call."""

_CHILD = (sys.executable, "-m", "worldagent.benchmarks._scale")
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND pid<>pg_backend_pid()"
_RUN = """INSERT INTO wa_schedule_run(workspace, schedule, slot, status, at, turn, note)
          VALUES('bench', 'old', ?, 'done', ?, NULL, NULL)"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts of a run: seconds and concurrent turns of each process, and rows that are removed."""

    seconds: float
    at_once: int
    rows: int


FULL = Sizes(seconds=10, at_once=50, rows=100_000)
QUICK = Sizes(seconds=0.5, at_once=4, rows=1000)


async def together(number: int, folder: Path, url: str | None, sizes: Sizes) -> tuple[list[Share], int | None]:
    """Run processes at the same time on one database; returns what each did, and the connections of all."""
    pipe = asyncio.subprocess.PIPE
    homes = [folder if url is None else folder / str(n) for n in range(number)]
    loads = [
        Load(name=f"p{n}", home=str(home), url=url, seconds=sizes.seconds, at_once=sizes.at_once, delay=DELAY)
        for n, home in enumerate(homes)
    ]
    running = [
        await asyncio.create_subprocess_exec(*_CHILD, json.dumps(asdict(load)), stdin=pipe, stdout=pipe)
        for load in loads
    ]
    for process in running:
        assert process.stdout is not None
        await process.stdout.readline()
    asked = [asyncio.ensure_future(process.communicate(b"go\n")) for process in running]
    await asyncio.sleep(sizes.seconds / 2)
    connections = None if url is None else await asyncio.to_thread(_connections, url)
    outputs = await asyncio.gather(*asked)
    return [Share(**json.loads(out)) for out, _ in outputs], connections


def _connections(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(_CONNECTIONS).fetchone()
    assert row is not None
    return int(row[0])


async def scaled(engine: str, places: Sequence[tuple[Path, str | None]] | None, sizes: Sizes) -> list[Row]:
    """The figures of one engine, with one process, two and four."""
    rows: list[Row] = []
    for place, number in enumerate(PROCESSES):
        shares, connections = ([], None) if places is None else await together(number, *places[place], sizes)
        turns = sum(share.turns for share in shares)
        named = f"{engine}_{number}"
        per_second = sum(share.turns / share.seconds for share in shares)
        rows += [
            Row(key=f"{named}_per_s", value=per_second or None, unit="/s", note=f"{turns} turns"),
            Row(
                key=f"{named}_cpu_ms",
                value=1e3 * sum(each.cpu for each in shares) / turns if turns else None,
                unit="ms",
            ),
            Row(key=f"{named}_memory_mb", value=max((each.memory / 1e6 for each in shares), default=None), unit="MB"),
        ]
        if engine == "postgres":
            each = None if connections is None else connections / number
            rows.append(Row(key=f"{named}_connections", value=each, unit="x"))
    return rows


async def pruned(engine: str, storage: Storage | None, sizes: Sizes) -> list[Row]:
    """Remove many old rows while turns run one after another."""
    rate = longest = usual = None
    if storage is not None:
        async with WorldAgent("bench", lm=constant_lm(answering), storage=storage) as agent:
            await _fill(agent, sizes.rows)
            usual = max([await _turn(agent) for _ in range(25)][5:])  # the first ones load what all later ones use
            began = time.perf_counter()
            pruning = asyncio.ensure_future(agent.upkeep.prune_by_age(runs=86_400))
            waits = [await _turn(agent)]
            while not pruning.done():
                waits.append(await _turn(agent))
            rate, longest = (await pruning).runs / (time.perf_counter() - began), max(waits)
    return [
        Row(key=f"{engine}_pruned_per_s", value=rate, unit="/s"),
        Row(key=f"{engine}_longest_turn_ms", value=None if usual is None else 1e3 * usual, unit="ms"),
        Row(key=f"{engine}_longest_turn_beside_ms", value=None if longest is None else 1e3 * longest, unit="ms"),
    ]


async def _fill(agent: WorldAgent, count: int) -> None:
    at = inside(agent).clock.now() - timedelta(days=40)
    slots = [utc_text(at + timedelta(seconds=number)) for number in range(count)]

    def write(transaction: Any) -> None:
        for slot in slots:
            transaction.execute(_RUN, (slot, slot))

    await inside(agent).stores.database.transact(write)


async def _turn(agent: WorldAgent) -> float:
    began = time.perf_counter()
    await agent.thread(new_id("beside")).converse(QUESTION)  # a long thread has turns that summarise it
    return time.perf_counter() - began


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    with ExitStack() as opened:
        folders = [Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in range(8)]
        found = opened.enter_context(server())
        report.section(
            "Processes on one SQLite home", await scaled("sqlite", [(each, None) for each in folders], sizes)
        )
        urls = None if found is None else [_database(found, f"bench_{n}") for n in range(4)]
        places = None if urls is None else list(zip(folders[3:], urls, strict=False))
        report.section("Processes on one Postgres", await scaled("postgres", places, sizes))
        in_file = Storage(home=folders[6])
        report.section("Removing old rows, SQLite", await pruned("sqlite", in_file, sizes))
        on_server = None if urls is None else Storage(home=folders[7], url=urls[3])
        report.section("Removing old rows, Postgres", await pruned("postgres", on_server, sizes))


def _database(found: Any, name: str) -> str:
    import psycopg

    with psycopg.connect(found.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return str(found.get_uri(name))


if __name__ == "__main__":
    main(
        "scale",
        "What several processes on one database do together.",
        lambda report: run(report, QUICK if report.quick else FULL),
    )
