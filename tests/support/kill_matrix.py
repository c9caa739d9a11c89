"""A turn that is killed at any point of its first run, while its pause is answered, and in a resume, and what follows.

As a program, `python tests/support/kill_matrix.py --table build/kills.md` kills at every point and writes the page;
with `PYTHONPATH=.dev:tests`. Each process of the turn is a fork of this one, which has everything loaded.
"""

import asyncio
import random
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import kill_turn
from support.databases import Engine, copied, made, removed
from support.house import ROOT
from support.kill_crowd import ALONE, Crowd
from support.kill_points import (
    AFTER,
    BEFORE,
    IN,
    QUEUED,
    WITHIN,
    Killer,
    Passed,
    Point,
    armed,
    lost_parts,
    numbered,
    points_of,
    some,
)
from support.kill_turn import HISTORY, NOTED, PLAIN
from support.processes import be_program, forked_result

PAGE = ROOT / "tests" / "golden" / "kills.md"
_WHEN = (BEFORE, WITHIN, IN, AFTER)
_COLUMNS = (
    "kill point",
    "points",
    "state found",
    "exactly once, by its key",
    "exactly once, in the database",
    "at most once",
    "after the resume",
)
_HEADINGS = {
    "first": "The first run is killed",
    "answered": "The process that brings the answers is killed",
    "resumed": "The resume after a kill is killed",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What all kills at one kind of point have in common.

    Attributes:
        phase: What was killed.
        when: As `Point` has it.
        what: Likewise.
        points: How many points there are of this kind.
        cells: What was found, by column: every value that came up.
    """

    phase: str
    when: str
    what: str
    points: int
    cells: tuple[frozenset[str], ...]

    @property
    def kind(self) -> str:
        """The kind of point in words."""
        return f"{self.when} {self.what}"

    def differs(self, kill: Mapping[str, Any]) -> list[str]:
        """Say in which columns one kill is not as the row has it."""
        found_by_column = zip(_COLUMNS[2:], self.cells, cells_of(kill), strict=True)
        return [
            f"{name}: {found}, and the table has {sorted(known)}"
            for name, known, found in found_by_column
            if found not in known
        ]


def cells_of(kill: Mapping[str, Any]) -> tuple[str, ...]:
    """What one kill has in the columns after the points."""
    return (
        kill["state"],
        _counted(kill["noted"], NOTED),
        _counted(Counter(kill["history"]), HISTORY),
        _counted(kill["effects"], PLAIN),
        kill["result"],
    )


def _counted(found: Mapping[str, int], expected: Iterable[str]) -> str:
    wanted = Counter(expected)
    wrong = {name: count for name, count in found.items() if count > wanted[name]}
    had = sum((Counter(found) & wanted).values())
    return f"{had} of {wanted.total()}" + "".join(f", {name} {count} times" for name, count in sorted(wrong.items()))


def rows_of(kills: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of a matrix, in an order that is the same in every run."""
    groups: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for kill in kills:
        groups.setdefault((kill["phase"], kill["what"], kill["when"]), []).append(cells_of(kill))
    phases = list(_HEADINGS)
    order = sorted(groups, key=lambda group: (phases.index(group[0]), group[1], _WHEN.index(group[2])))
    return [
        Row(
            phase,
            when,
            what,
            len(groups[phase, what, when]),
            tuple(frozenset(column) for column in zip(*groups[phase, what, when], strict=True)),
        )
        for phase, what, when in order
    ]


def page(rows: Iterable[Row]) -> str:
    """The page with these rows; what stands above its tables is kept."""
    given = list(rows)
    parts = [PAGE.read_text(encoding="utf-8").partition(f"\n## {_HEADINGS['first']}")[0]]
    for phase, heading in _HEADINGS.items():
        found = [row for row in given if row.phase == phase]
        total = sum(row.points for row in found)
        head = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
        cells = [" | ".join("; ".join(sorted(cell)) for cell in row.cells) for row in found]
        lines = [f"| {row.kind} | {row.points} | {each} |" for row, each in zip(found, cells, strict=True)]
        parts.append("\n".join([f"## {heading}", "", f"{total} points.", "", *head, *lines, ""]))
    return "\n".join(parts)


def read_table() -> Iterator[Row]:
    """The rows of the page."""
    phases = {heading: phase for phase, heading in _HEADINGS.items()}
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, *lines = section.splitlines()
        for line in [line for line in lines if line.startswith("|")][2:]:
            kind, points, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            when = next(word for word in _WHEN if kind.startswith(f"{word} "))
            found = tuple(frozenset(cell.split("; ")) for cell in cells)
            yield Row(phases[heading], when, kind.removeprefix(f"{when} "), int(points), found)


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
        turn: The module of the turn: its `begin` and `go_on`.
    """

    phase: str
    folder: Path
    at_once: bool = False
    engine: Engine = "sqlite"
    grouping: str = ALONE
    queued: bool = False
    turn: Any = kill_turn

    def points(self) -> list[Point]:
        """Every point that the phase passes, by running it without a kill."""
        home = self._home("counted")
        _, passed = self._run(home, Killer(None, home / "where", queued=self.queued))
        return [point for point in points_of(passed) if (point.when == QUEUED) is self.queued]

    def kill(self, point: Point) -> dict[str, Any]:
        """Kill at `point`, go on in another process, and say what came of it."""
        home = self._home(f"{point.when} {point.what} {point.nth}")
        where = home / "where"
        killer = Killer(point, where, at_once=self.at_once, queued=self.queued, crowd=self._crowd(home))
        ended, _ = self._run(home, killer)
        assert ended == -signal.SIGKILL, f"{point} was not passed: the turn ended with {ended}"
        assert where.read_text() == f"{point.when} {point.what}"
        leaks, (gaps, lost) = kill_turn.leaks_of(home), lost_parts(home)
        group = int((home / "group").read_text()) if self.grouping != ALONE else 1
        killer = Killer(None, where, crowd=self._crowd(home))
        found: dict[str, Any]
        code, found = forked_result(lambda: _run(self.turn.go_on, home, killer))
        assert code == 0, f"no process could resume after {point}"
        leaks += kill_turn.leaks_of(home)
        removed(home)
        where_killed = {"phase": self.phase, "when": point.when, "what": point.what, "nth": point.nth}
        return where_killed | {"leaks": leaks, "gaps": gaps, "lost": lost, "group": group} | found

    def _crowd(self, home: Path) -> Crowd | None:
        return None if self.grouping == ALONE else Crowd(self.grouping, home)

    def _run(self, home: Path, killer: Killer) -> tuple[int, Passed]:
        """Run the phase in a fork; gives how that ended, and how often it passed each point."""
        work = self.turn.begin if self.phase == FIRST else self.turn.go_on
        return forked_result(lambda: (_run(work, home, killer), killer.counted())[1])

    def _home(self, name: str) -> Path:
        home = self.folder / f"{self.phase} {name}".replace("/", "_")
        if self.phase == FIRST:
            return made(self.engine, home)
        before = self.folder / f"before {self.phase}"
        if not before.exists():
            made(self.engine, before)
            point = _BEFORE_THE_RESUME if self.phase == RESUMED else None
            ended, _ = forked_result(lambda: _run(self.turn.begin, before, Killer(point, before / "where")))
            assert ended == (0 if point is None else -signal.SIGKILL), f"the turn ended with {ended}"
        copied(before, home)
        return home


def _run(work: Callable[[Path, Killer], Coroutine[Any, Any, Any]], home: Path, killer: Killer) -> Any:
    """Begin the turn, or resume it, in this process."""
    armed(killer)
    numbered(home)  # outside of what the killer does, which dies in it
    return asyncio.run(work(home, killer)) or {}


def kills(phases: Iterable[str], *, sample: int | None = None, seed: int = 0, **how: Any) -> Iterator[dict[str, Any]]:
    """Kill at every point of the phases, or at so many of each; `how` is as `Matrix` has it."""
    source = random.Random(seed)
    for phase in phases:
        with tempfile.TemporaryDirectory() as folder:
            matrix = Matrix(phase, Path(folder), **how)
            yield from map(matrix.kill, some(matrix.points(), sample, source))


def found(*, points: Iterable[Sequence[Any]] | None = None, **how: Any) -> Iterator[dict[str, Any]]:
    """Kill at the points given, each with its phase; without them, as `kills` has it."""
    return kills(**how) if points is None else chosen([(phase, Point(*point)) for phase, *point in points], **how)


def chosen(points: Iterable[tuple[str, Point]], *, engine: Engine = "sqlite") -> Iterator[dict[str, Any]]:
    """Kill at the points given, each with its phase; before them, one line a phase says what that passes."""
    with tempfile.TemporaryDirectory() as folder:
        matrices = {phase: Matrix(phase, Path(folder) / phase, engine=engine) for phase in PHASES}
        for phase, matrix in matrices.items():
            yield {"phase": phase, "points": [[point.when, point.what, point.nth] for point in matrix.points()]}
        for phase, point in points:
            yield matrices[phase].kill(point)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        Path(sys.argv[2]).write_text(page(rows_of(kills(PHASES))), encoding="utf-8")
    else:
        be_program(found)
