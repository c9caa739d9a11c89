"""Compares worldagent with similar frameworks: the same turns, against the same HTTP stub of a chat service.

Run `python benchmarks/peers.py [--quick] [--json] [--readme] [--rounds N] [--only NAME,...] [--page FILE]`. It prints a
table and, last, one JSON line; README.md explains both. The first run installs each framework into its own environment
below `.benchmarks/`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from worldagent.benchmarks._environments import FOLDER, Unmeasured
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._peers import PEERS, Job, Measured, Work
from worldagent.benchmarks._peers_processes import Bench, bench, python_of, quiet_load

LOAD = 0.5
"""The load average below which a block starts."""
LATENCY = 200
"""Milliseconds of a model call of concurrent turns."""
Value = Callable[[Measured], float | None]

_KEEPERS = ("openai-agents", "agno", "deepagents", "ours")
_DELEGATORS = tuple(peer for peer in PEERS if peer != "dspy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run.

    Attributes:
        rounds: Rounds of each block.
        warm: Turns of a process before the measured ones.
        turns: Turns that a process measures one after the other.
        delegations: Delegations that a process measures one after the other.
        at_once: Concurrent turns that a process measures.
        wait: The most seconds that a block waits for a quiet machine.
        processes: Concurrent processes. With more than one the run is faster, but its figures mean nothing.
    """

    rounds: int
    warm: int
    turns: int
    delegations: int
    at_once: int
    wait: float
    processes: int = 1


FULL = Sizes(rounds=5, warm=20, turns=200, delegations=100, at_once=1000, wait=60)
QUICK = Sizes(rounds=1, warm=1, turns=2, delegations=2, at_once=10, wait=0, processes=os.cpu_count() or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured case of a peer. The attributes are those of a `Job`."""

    peer: str
    work: Work
    stored: bool = False
    concurrent: bool = False
    collector_set: bool = False

    @property
    def model_calls(self) -> int:
        """Model calls of a turn. A delegation makes three: the plan, the worker's answer and the final answer."""
        return 3 if self.work == "delegation" else 1

    @property
    def name(self) -> str:
        return self.peer.replace("-", "_")


@dataclass(slots=True)
class Results:
    """The results of a block.

    Attributes:
        runs: The processes of each case, in the order of the rounds. A case that failed has none.
        problems: Why a case failed or did not run.
        stub_busy: CPU of the stub divided by the wall time of the measured turns, for each process.
    """

    runs: dict[Case, list[Measured]] = field(default_factory=dict)
    problems: dict[Case, str] = field(default_factory=dict)
    stub_busy: dict[Case, list[float]] = field(default_factory=dict)

    def row(self, key: str, case: Case, value: Value, unit: str, note: str = "") -> Row:
        """The median of a value over the rounds."""
        found = [value(run) for run in self.runs.get(case, ())]
        return _row(Row(key=key, value=None, unit=unit, note=note), found, self.problems.get(case, ""))

    def ratio(self, key: str, case: Case, base: Case, value: Value, *, aim: float | None = None) -> Row:
        """The median over rounds of a value divided by the base's value in the same round."""
        pairs = zip(self.runs.get(case, ()), self.runs.get(base, ()), strict=False)
        found = [_over(value(run), value(below)) for run, below in pairs]
        problem = self.problems.get(case) or self.problems.get(base, "")
        return _row(Row(key=key, value=None, aim=aim), found, problem)

    def failed(self, key: str) -> Row:
        """The number of failed turns in all cases and rounds."""
        runs = [run for runs in self.runs.values() for run in runs]
        return Row(key=key, value=sum(run.failed for run in runs) if runs else None, unit="", aim=0)


def _row(empty: Row, values: Sequence[float | None], problem: str) -> Row:
    known = [value for value in values if value is not None]
    if problem or not known or len(known) < len(values):
        return replace(empty, note=problem or "this system does not report it")
    return replace(empty, value=median(known), spread=(min(known), max(known)))


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


# --- running --------------------------------------------------------------------------------------------------------


class Runner:
    """Runs blocks of cases in rounds.

    Args:
        report: Receives the rows.
        sizes: The amounts of the run.
        stage: The stub, and the core of processes.
        pythons: The Python of each measured peer.
        missing: Why a peer is not measured.
    """

    def __init__(
        self, report: Report, sizes: Sizes, stage: Bench, pythons: Mapping[str, Path], missing: Mapping[str, str]
    ) -> None:
        self._report = report
        self._sizes = sizes
        self._stage = stage
        self._pythons = pythons
        self._missing = missing
        self._turn_taking = asyncio.Semaphore(sizes.processes)  # first come, first served
        self._loads: list[float | None] = []

    async def block(self, cases: Iterable[Case]) -> Results:
        """Measure each case once a round: A, B, C, then C, B, A, and so on. A case that failed does not run again."""
        self._loads.append(load := await quiet_load(LOAD, wait=self._sizes.wait))
        self._report.say("", f"Block {len(self._loads)}: load {'unknown' if load is None else f'{load:.2f}'} before it")
        results, order = Results(), list(cases)
        results.problems.update({case: self._missing[case.peer] for case in order if case.peer in self._missing})
        for _ in range(self._sizes.rounds):
            async with asyncio.TaskGroup() as group:
                for case in order:
                    group.create_task(self._measure(case, results))
            order.reverse()
        return results

    def loads(self) -> list[Row]:
        """The load average before each block."""
        return [
            Row(key=f"load_before_{number}", value=load, unit="", aim=LOAD)
            for number, load in enumerate(self._loads, start=1)
        ]

    async def _measure(self, case: Case, results: Results) -> None:
        async with self._turn_taking:
            if case in results.problems:
                return
            try:
                await self._run(case, results)
            except Unmeasured as problem:
                results.problems[case] = str(problem)
                results.runs.pop(case, None)

    async def _run(self, case: Case, results: Results) -> None:
        name, url = self._stage.url(LATENCY if case.concurrent else 0)
        before = self._stage.counted(name)
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="run-", ignore_cleanup_errors=True) as folder:
            job = self._job(case, url, folder)
            measured = await self._stage.measured(self._pythons[case.peer], job)
        counted = self._stage.counted(name)
        if measured.failed:
            self._report.say(f"  {case.peer}: {measured.failed} turns failed; the first: {measured.problem}")
        elif counted.calls != case.model_calls * (job.warm + job.turns):
            calls = counted.calls / (job.warm + job.turns)
            raise Unmeasured(f"{case.peer} made {calls:g} model calls a turn, not {case.model_calls}")
        results.runs.setdefault(case, []).append(measured)
        wall = measured.wall if case.concurrent else measured.wall * job.turns
        results.stub_busy.setdefault(case, []).append((counted.cpu - before.cpu) / wall)

    def _job(self, case: Case, url: str, folder: str) -> Job:
        sizes = self._sizes
        turns = sizes.delegations if case.work == "delegation" else sizes.turns
        return Job(
            peer=case.peer,
            work=case.work,
            stored=case.stored,
            url=url,
            folder=folder,
            warm=min(sizes.warm, 3) if case.concurrent else sizes.warm,
            turns=sizes.at_once if case.concurrent else turns,
            concurrent=case.concurrent,
            collector_set=case.collector_set,
        )


# --- blocks ---------------------------------------------------------------------------------------------------------


def _costs(results: Results, prefix: str, cases: Iterable[Case]) -> list[Row]:
    """CPU and wall time of a turn of each case."""
    rows: list[Row] = []
    for case in cases:
        rows.append(results.row(f"{prefix}_{case.name}_cpu_ms", case, lambda run: 1e3 * run.cpu, "ms"))
        rows.append(results.row(f"{prefix}_{case.name}_wall_ms", case, lambda run: 1e3 * run.wall, "ms"))
    return rows


def _model_calls(results: Results, key: str, calls: int) -> Row:
    """The model calls of a turn. They are the same in each run that has figures."""
    return Row(key=key, value=calls if results.runs else None, unit="", note="of each, counted at the stub")


async def turn(runner: Runner, report: Report) -> None:
    """One turn without storage, compared with a bare `dspy.Predict`."""
    cases = {peer: Case(peer=peer, work="turn") for peer in PEERS}
    results = await runner.block(cases.values())
    report.section(
        "One turn without storage",
        [
            *_costs(results, "turn", cases.values()),
            _model_calls(results, "turn_model_calls", 1),
            results.ratio("turn_ours_over_dspy_cpu", cases["ours"], cases["dspy"], lambda run: run.cpu, aim=1.3),
        ],
    )


async def stored_turn(runner: Runner, report: Report) -> None:
    """One turn with defaults: each peer with its own SQLite storage."""
    cases = {peer: Case(peer=peer, work="turn", stored=True) for peer in _KEEPERS}
    results = await runner.block(cases.values())
    rows = [
        results.ratio(f"stored_turn_ours_over_{case.name}_cpu", cases["ours"], case, lambda run: run.cpu, aim=aim)
        for case, aim in zip(cases.values(), (0.65, None, None), strict=False)
    ]
    report.section("One turn as users have it", [*_costs(results, "stored_turn", cases.values()), *rows])


async def delegation(runner: Runner, report: Report) -> None:
    """One delegation without storage: the plan, the worker, the answer."""
    cases = {peer: Case(peer=peer, work="delegation") for peer in _DELEGATORS}
    results = await runner.block(cases.values())
    rows = [*_costs(results, "delegation", cases.values()), _model_calls(results, "delegation_model_calls", 3)]
    report.section("One delegation without storage", rows)


async def stored_delegation(runner: Runner, report: Report) -> None:
    """One delegation with defaults."""
    cases = {peer: Case(peer=peer, work="delegation", stored=True) for peer in _KEEPERS}
    results = await runner.block(cases.values())
    rows = [
        results.ratio(f"stored_delegation_ours_over_{case.name}_cpu", cases["ours"], case, lambda run: run.cpu, aim=aim)
        for case, aim in zip(cases.values(), (0.85, None, 0.31), strict=False)
    ]
    report.section("One delegation as users have it", [*_costs(results, "stored_delegation", cases.values()), *rows])


async def delegations_at_once(runner: Runner, report: Report, count: int) -> None:
    """Concurrent delegations, compared with a hand-written loop on the openai client, which stores nothing."""
    loop = Case(peer="openai", work="delegation", concurrent=True)
    bare = replace(loop, peer="ours")
    stored = replace(bare, stored=True)
    collected = replace(stored, collector_set=True)
    cases = {
        "at_once_openai": loop,
        "at_once_ours": bare,
        "stored_at_once_ours": stored,
        "collected_at_once_ours": collected,
    }
    results = await runner.block(cases.values())
    rows: list[Row] = []
    for key, case in cases.items():
        busy = max(results.stub_busy.get(case, ()), default=0.0)
        rows.append(results.row(f"{key}_wall_s", case, lambda run: run.wall, "s", f"stub busy {busy:.0%}"))
        rows.append(results.row(f"{key}_cpu_ms", case, lambda run: 1e3 * run.cpu, "ms"))
    for key, case, aim in (
        ("at_once", bare, None),
        ("stored_at_once", stored, 1.1),
        ("collected_at_once", collected, 0.7),
    ):
        rows.append(results.ratio(f"{key}_ours_over_openai_wall", case, loop, lambda run: run.wall, aim=aim))
    title = f"{count:,} delegations at once, {LATENCY} ms a model call"
    report.section(title, [*rows, results.failed("at_once_failed")])


async def turns_at_once(runner: Runner, report: Report, count: int) -> None:
    """Concurrent plain turns, streamed: failures, memory, time to the first piece of text."""
    loop = Case(peer="openai", work="stream", concurrent=True)
    ours = replace(loop, peer="ours", stored=True)
    results = await runner.block((loop, ours))
    rows: list[Row] = []
    for case in (loop, ours):
        key = f"turns_at_once_{case.name}"
        rows += [
            results.row(f"{key}_wall_s", case, lambda run: run.wall, "s"),
            results.row(f"{key}_cpu_ms", case, lambda run: 1e3 * run.cpu, "ms"),
            results.row(f"{key}_first_ms", case, lambda run: None if run.first is None else 1e3 * run.first, "ms"),
            results.row(f"{key}_memory_kb", case, lambda run: None if run.memory is None else run.memory / 1e3, "kB"),
        ]
    rows.append(results.ratio("turns_at_once_ours_over_openai_first", ours, loop, lambda run: run.first))
    rows.append(results.failed("turns_at_once_failed"))
    report.section(f"{count:,} plain turns at once, streamed, {LATENCY} ms a model call", rows)


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    sizes = QUICK if report.quick else FULL
    sizes = replace(sizes, rounds=report.given.rounds or sizes.rounds)
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for peer in PEERS:
        try:
            if peer not in report.given.only:
                raise Unmeasured(f"{peer} is left out")
            pythons[peer] = python_of(peer, report.say)
        except Unmeasured as problem:
            missing[peer] = str(problem)
    FOLDER.mkdir(exist_ok=True)
    async with bench(pinned=sizes.processes == 1) as stage:
        runner = Runner(report, sizes, stage, pythons, missing)
        await turn(runner, report)
        await stored_turn(runner, report)
        await delegation(runner, report)
        await stored_delegation(runner, report)
        await delegations_at_once(runner, report, sizes.at_once)
        await turns_at_once(runner, report, sizes.at_once)
        report.section("Load average of one minute before each block", runner.loads())
    if page := report.given.page:
        page.write_text(with_tables(page.read_text(encoding="utf-8"), report.rows), encoding="utf-8")


# --- the page -------------------------------------------------------------------------------------------------------

_TITLES: Mapping[str, str] = {
    "openai": "the openai client, by hand",
    "dspy": "`dspy.Predict` alone",
    "ours": "worldagent",
}
_ONE = ("turn", "stored_turn", "delegation", "stored_delegation")
_AT_ONCE: Mapping[str, str] = {
    "at_once_openai": "the openai client, by hand",
    "at_once_ours": "worldagent without storage",
    "stored_at_once_ours": "worldagent with storage",
    "collected_at_once_ours": "worldagent with storage, the collector set",
}
_BEGIN, _END = "<!-- figures of benchmarks/peers.py -->", "<!-- end of the figures -->"


def tables(rows: Sequence[Row]) -> str:
    """Format the figures as the two tables of docs/guides/performance.md."""
    found = {row.key: row for row in rows}

    def cells(*keys: str) -> str:
        return " | ".join(found[key].short() if key in found and found[key].value is not None else "" for key in keys)

    lines = ["| CPU | turn | turn, stored | delegation | delegation, stored |", "|---|--:|--:|--:|--:|"]
    for peer in PEERS:
        keys = (f"{what}_{peer.replace('-', '_')}_cpu_ms" for what in _ONE)
        lines.append(f"| {_TITLES.get(peer, peer)} | {cells(*keys)} |")
    lines += ["", "| delegations at once | wall of all | CPU of each |", "|---|--:|--:|"]
    lines += [f"| {title} | {cells(f'{key}_wall_s', f'{key}_cpu_ms')} |" for key, title in _AT_ONCE.items()]
    return "\n".join(lines)


def with_tables(page: str, rows: Sequence[Row]) -> str:
    """Return the page with new tables between its two markers."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise SystemExit(f"the page lacks the lines {_BEGIN!r} and {_END!r}; add them where the tables go")
    return f"{before}{begin}\n\n{tables(rows)}\n\n{end}{after}"


def _names(given: str) -> frozenset[str]:
    names = frozenset(given.split(","))
    if unknown := names - set(PEERS):
        raise argparse.ArgumentTypeError(f"unknown peers {sorted(unknown)}; the peers are {', '.join(PEERS)}")
    return names


def _count(given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {given!r}")
    return int(given)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=_count, metavar="N", help=f"rounds of each block, by default {FULL.rounds}")
    parser.add_argument(
        "--only",
        type=_names,
        default=frozenset(PEERS),
        metavar="NAME,...",
        help=f"peers to measure: {', '.join(PEERS)}",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write the tables into FILE between its markers, such as docs/guides/performance.md",
    )


if __name__ == "__main__":
    main("peers", "Compare worldagent with similar frameworks.", run, options=_options)
