"""A turn that is killed at any point of its first run, while its pause is answered, and in a resume, and what follows.

As a program, `python tests/support/kill_matrix.py --table docs/reference/kills.md` kills at every point and writes the
page; with `PYTHONPATH=.dev:tests`. Each process of the turn is a fork of this one, which has everything loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import kill_prefix, kill_table, kill_turn
from support.databases import ENGINES, Engine, copied, made, removed
from support.kill_crowd import ALONE, GROUPINGS, Crowd
from support.kill_points import IN, QUEUED, Killer, Point, armed
from support.processes import forked

FIRST, ANSWERED, RESUMED = "first", "answered", "resumed"
PHASES = (FIRST, ANSWERED, RESUMED)
"""What is killed: the first run, the process that brings a person's answers, a resume after a kill."""

_BEFORE_THE_RESUME = Point(IN, kill_turn.PLAIN_EFFECT, 2)  # of one sibling, while the others have ended


@dataclass(frozen=True)
class Matrix:
    """The kills of one phase.

    Args:
        phase: One of `PHASES`.
        folder: Where homes are made.
        at_once: See `Killer`.
        engine: Where the turn is kept.
        grouping: Whether other threads' turns run in the killed process, and how their transactions go with its own.
        queued: Whether it is killed between queue and flush, and nowhere else.
    """

    phase: str
    folder: Path
    at_once: bool = False
    engine: Engine = "sqlite"
    grouping: str = ALONE
    queued: bool = False

    def points(self) -> list[Point]:
        """Every point that the phase passes, by running it without a kill."""
        home = self._home("counted")
        counted = home / "counted"
        self._run(home, Killer(None, home / "where", queued=self.queued), counted)
        passed: list[tuple[str, str, int]] = json.loads(counted.read_text())
        return [
            Point(when, what, nth)
            for when, what, most in passed
            if (when == QUEUED) is self.queued
            for nth in range(1, most + 1)
        ]

    def kill(self, point: Point) -> dict[str, Any]:
        """Kill at `point`, go on in another process, and say what came of it."""
        home = self._home(f"{point.when} {point.what} {point.nth}")
        where = home / "where"
        killer = Killer(point, where, at_once=self.at_once, queued=self.queued, crowd=self._crowd(home))
        ended = self._run(home, killer, home / "counted")
        assert ended == -signal.SIGKILL, f"{point} was not passed: the turn ended with {ended}"
        assert where.read_text() == f"{point.when} {point.what}"
        leaks, (gaps, lost) = kill_turn.leaks_of(home), kill_prefix.lost(home)
        group = int((home / "group").read_text()) if self.grouping != ALONE else 1
        results = home / "told"
        killer = Killer(None, where, crowd=self._crowd(home))
        assert forked(lambda: _go_on(home, killer, results)) == 0, f"nobody could go on after {point}"
        found: dict[str, Any] = json.loads(results.read_text())
        leaks += kill_turn.leaks_of(home)
        removed(home)
        where_killed = {"phase": self.phase, "when": point.when, "what": point.what, "nth": point.nth}
        return where_killed | {"leaks": leaks, "gaps": gaps, "lost": lost, "group": group} | found

    def _crowd(self, home: Path) -> Crowd | None:
        return None if self.grouping == ALONE else Crowd(self.grouping, home)

    def _run(self, home: Path, killer: Killer, counted: Path) -> int:
        work = _begin if self.phase == FIRST else _go_on
        return forked(lambda: work(home, killer, counted if killer.point is None else home / "told"))

    def _home(self, name: str) -> Path:
        home = self.folder / f"{self.phase} {name}".replace("/", "_")
        if self.phase == FIRST:
            return made(self.engine, home)
        before = self.folder / f"before {self.phase}"
        if not before.exists():
            made(self.engine, before)
            point = _BEFORE_THE_RESUME if self.phase == RESUMED else None
            ended = forked(lambda: _begin(before, Killer(point, before / "where"), before / "counted"))
            assert ended == (0 if point is None else -signal.SIGKILL), f"the turn ended with {ended}"
        copied(before, home)
        return home


def _begin(home: Path, killer: Killer, counted: Path) -> None:
    _arm(home, killer)
    asyncio.run(kill_turn.begin(home, killer))
    counted.write_text(_counts(killer))


def _go_on(home: Path, killer: Killer, results: Path) -> None:
    _arm(home, killer)
    found = asyncio.run(kill_turn.go_on(home, killer))
    results.write_text(_counts(killer) if results.name == "counted" else json.dumps(found))


def _arm(home: Path, killer: Killer) -> None:
    armed(killer)
    kill_prefix.numbered(home)  # outside of what the killer does, which dies in it


def _counts(killer: Killer) -> str:
    return json.dumps([(when, what, most) for (when, what), most in killer.passed.items()])


def kills(phases: Iterable[str], *, sample: int | None = None, seed: int = 0, **how: Any) -> Iterator[dict[str, Any]]:
    """Kill at every point of the phases, or at so many of each; `how` is as `Matrix` has it."""
    source = random.Random(seed)
    for phase in phases:
        with tempfile.TemporaryDirectory() as folder:
            matrix = Matrix(phase, Path(folder), **how)
            points = matrix.points()
            yield from map(matrix.kill, points if sample is None else source.sample(points, min(sample, len(points))))


def side_by_side(phases: Iterable[str]) -> Iterator[dict[str, Any]]:
    """As `kills`, each phase in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running: list[tuple[Path, subprocess.Popen[bytes]]] = []
        for phase in phases:
            results = Path(folder, phase)
            out = stack.enter_context(results.open("wb"))
            argv = [sys.executable, "-P", __file__, "--phase", phase]
            running.append((results, stack.enter_context(subprocess.Popen(argv, stdout=out))))
        for results, process in running:
            if process.wait() != 0:
                raise SystemExit(f"the phase {results.name!r} ended with {process.returncode}")
            yield from map(json.loads, results.read_text().splitlines())


def chosen(points: Iterable[tuple[str, Point]], *, engine: Engine = "sqlite") -> Iterator[dict[str, Any]]:
    """Kill at the points given, each with its phase; before them, one line a phase says what that passes."""
    with tempfile.TemporaryDirectory() as folder:
        matrices = {phase: Matrix(phase, Path(folder) / phase, engine=engine) for phase in PHASES}
        for phase, matrix in matrices.items():
            yield {"phase": phase, "points": [[point.when, point.what, point.nth] for point in matrix.points()]}
        for phase, point in points:
            yield matrices[phase].kill(point)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--table", type=Path, help="the page to write")
    words.add_argument("--phase", choices=PHASES, action="append", help="kill in this phase alone")
    words.add_argument("--at-once", action="store_true", help="kill whatever runs beside the point")
    words.add_argument("--points", help="phases and points to kill at, as JSON")
    words.add_argument("--engine", choices=ENGINES, default="sqlite", help="where the turn is kept")
    words.add_argument("--grouping", choices=GROUPINGS, default=ALONE, help="whose transactions go with the killed one")
    words.add_argument("--queued", action="store_true", help="kill between queue and flush alone")
    words.add_argument("--sample", type=int, help="kill at so many points of each phase")
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    if given.points:
        points = [(phase, Point(*point)) for phase, *point in json.loads(given.points)]
        found = chosen(points, engine=given.engine)
    elif given.table:
        found = side_by_side(PHASES)
    else:
        found = kills(
            given.phase or PHASES,
            sample=given.sample,
            seed=given.seed,
            at_once=given.at_once,
            engine=given.engine,
            grouping=given.grouping,
            queued=given.queued,
        )
    results: list[dict[str, Any]] = []
    for one in found:
        results.append(one)
        sys.stdout.write(json.dumps(one) + "\n")
        sys.stdout.flush()
    if given.table:
        given.table.write_text(kill_table.page(kill_table.rows_of(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
