"""How benchmarks measure and report: interleaved rounds, medians of ratios, a table and one JSON line.

This module imports nothing of the product. The scripts in this folder define what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some work in seconds: `cpu` of all threads of the process, and `wall` time."""

    cpu: float
    wall: float


class Stopwatch:
    """Measures from its creation to `read`. It collects earlier garbage first, which is not counted.

    Args:
        inside: Whether it runs within another measurement, which has already collected garbage.
    """

    def __init__(self, *, inside: bool = False) -> None:
        if not inside:
            gc.collect()
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self, calls: int = 1) -> Cost:
        return Cost((time.process_time() - self._cpu) / calls, (time.perf_counter() - self._wall) / calls)


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a call of each case, by rounds.

    Attributes:
        rounds: Costs by the name of the case, in the order of the rounds.
    """

    rounds: Mapping[str, Sequence[Cost]]

    def cpu(self, case: str) -> float:
        """Median CPU seconds of one call."""
        return median(cost.cpu for cost in self.rounds[case])

    def wall(self, case: str) -> float:
        """Median wall seconds of one call."""
        return median(cost.wall for cost in self.rounds[case])

    def cpu_ratio(self, case: str, base: str) -> float:
        """Median over rounds of CPU divided by the base's CPU in the same round, so that a slow moment hits both."""
        return median(a.cpu / b.cpu for a, b in zip(self.rounds[case], self.rounds[base], strict=True))

    def wall_ratio(self, case: str, base: str) -> float:
        """The same for wall time."""
        return median(a.wall / b.wall for a, b in zip(self.rounds[case], self.rounds[base], strict=True))


async def interleaved(cases: Mapping[str, Work], *, rounds: int, calls: int) -> Costs:
    """Run every case in turn, `calls` times a round. The setup in a first call is not counted."""
    for work in cases.values():
        for _ in range(min(calls, 5)):
            await work()
    taken: dict[str, list[Cost]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, work in cases.items():
            watch = Stopwatch()
            for _ in range(calls):
                await work()
            taken[name].append(watch.read(calls))
    return Costs(taken)


async def at_once(start: Callable[[int], Awaitable[object]], count: int) -> Cost:
    """Start `count` pieces of work concurrently and wait for all of them."""
    watch = Stopwatch()
    await asyncio.gather(*(start(number) for number in range(count)))
    return watch.read()


def processes(commands: Mapping[str, Sequence[str]], *, rounds: int) -> Costs:
    """Start each command in turn and wait for it. CPU is the user and system time of the child."""
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            before, watch = _children(), Stopwatch()
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            wall = watch.read().wall
            if number:  # the first round warms the disk's cache
                taken[name].append(Cost(_children() - before, wall))
    return Costs(taken)


def bytes_written() -> int | None:
    """Bytes that this process has written to the system so far; None if the system does not report them."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        key: Its name in the JSON line, which README.md explains.
        value: The figure; None if it could not be measured, and then `note` says why.
        unit: `x`, `ms`, `us`, `kB`.
        aim: The upper bound that it should meet, if it has one.
        least: The lower bound that it should meet, for a figure that should be high.
        spread: The figure in the lowest and in the highest round, for a median of rounds.
        note: A remark for the reader.
    """

    key: str
    value: float | None
    unit: str = "x"
    aim: float | None = None
    least: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        if self.value is None:
            return False
        return (self.aim is not None and self.value > self.aim) or (self.least is not None and self.value < self.least)

    def short(self) -> str:
        """Format the figure with three digits or more, for a table of a page."""
        if self.value is None:
            return "-"
        digits = 0 if self.value >= 100 or self.value == int(self.value) else 1 if self.value >= 10 else 2
        return f"{self.value:,.{digits}f}{'' if self.unit == 'x' else ' '}{self.unit}".rstrip()

    def line(self) -> str:
        shown = "-" if self.value is None else f"{self.value:,.2f} {self.unit}"
        aim = "" if self.aim is None else f"<= {self.aim:g} {self.unit}"
        aim = aim if self.least is None else f">= {self.least:g} {self.unit}"
        verdict = "MISSED" if self.missed else "ok" if aim and self.value is not None else ""
        note = self.note if self.spread is None else f"{self.spread[0]:,.2f} to {self.spread[1]:,.2f}  {self.note}"
        return f"  {self.key:<44}{shown:>16}  {aim:>12}  {verdict:<7}{note}".rstrip()


@dataclass(slots=True)
class Report:
    """The rows of one run. Each section is printed as soon as it is measured, unless `quiet`.

    Attributes:
        given: The command line, including options that only this benchmark has.
    """

    benchmark: str
    quick: bool
    quiet: bool
    given: argparse.Namespace
    rows: list[Row] = field(default_factory=list)

    def section(self, title: str, rows: Sequence[Row]) -> None:
        self.rows += rows
        self.say(f"\n{title}", *(row.line() for row in rows))

    def say(self, *lines: str) -> None:
        """Print other lines than figures, unless `quiet`."""
        if not self.quiet:
            print(*lines, sep="\n", flush=True)

    def finish(self) -> None:
        """Print the JSON line."""
        line = {
            "benchmark": self.benchmark,
            "quick": self.quick,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "figures": {row.key: None if row.value is None else round(row.value, 3) for row in self.rows},
            "spread": {row.key: [round(end, 3) for end in row.spread] for row in self.rows if row.spread is not None},
            "missed": [row.key for row in self.rows if row.missed],
        }
        print(json.dumps(line) if self.quiet else f"\n{json.dumps(line)}", file=sys.stdout)


def with_measured(text: str, rows: Sequence[Row]) -> str:
    """Return README.md's `text` with the figures of `rows` in its last column, `measured`."""
    for row in rows:
        text = re.sub(rf"^(\| `{row.key}` \|.*\|)[^|]*\|$", rf"\1 {row.short()} |", text, flags=re.MULTILINE)
    return text


def main(
    name: str,
    description: str,
    run: Callable[[Report], Awaitable[None]],
    *,
    options: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """Read the command line of the benchmark `name` and run it; `options` adds options that only this one has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="make only a few calls, to show that the script runs")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    parser.add_argument("--readme", action="store_true", help="write the figures into README.md's column `measured`")
    if options is not None:
        options(parser)
    given = parser.parse_args()
    report = Report(name, quick=given.quick, quiet=given.json, given=given)

    async def measure() -> None:
        await run(report)

    asyncio.run(measure())
    if given.readme:
        readme = Path(__file__).with_name("README.md")
        readme.write_text(with_measured(readme.read_text(encoding="utf-8"), report.rows), encoding="utf-8")
    report.finish()


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
