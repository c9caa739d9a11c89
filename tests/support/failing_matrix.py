"""A turn and an edit of which any write fails, and what follows in the same process; or kills it, and in another one.

As a program, `python tests/support/failing_matrix.py --turn edit --engine sqlite` has each write fail, one in each run,
and prints what came of it; with `PYTHONPATH=.dev:tests`. Each run is a fork of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import edited_turn, kill_prefix, kill_turn
from support.databases import ENGINES, Engine, made, removed
from support.failing_writes import FailingWrites
from support.kill_points import AFTER, BEFORE, WITHIN, Point, armed
from support.processes import forked

TURNS = {"parts": kill_turn.through, "edit": edited_turn.through}


def ran(turn: str, point: Point | None, home: Path, engine: Engine, **how: bool) -> dict[str, Any]:
    """Run a turn in a fork, with or without a write that fails; gives what came of it.

    Where the write kills the process, another one goes on with the turn.
    """
    made(engine, home)
    told = home / "told"

    def work(failing: FailingWrites) -> None:
        armed(failing)
        kill_prefix.numbered(home)
        found = asyncio.run(TURNS[turn](home, failing))
        points = [(when, what, most) for (when, what), most in failing.passed.items()]
        told.write_text(json.dumps(found | {"failed": failing.failed, "points": points}))

    failing = FailingWrites(point, home, engine, **how)
    if failing.kills:
        assert forked(lambda: work(failing)) == -signal.SIGKILL, f"the turn {turn!r} did not come to {point}"
        failing = FailingWrites(None, home, engine)
    assert forked(lambda: work(failing)) == 0, f"the turn {turn!r} did not come through with {point}"
    found: dict[str, Any] = json.loads(told.read_text())
    found["gaps"], _ = kill_prefix.lost(home)
    removed(home)
    return found


def failures(turn: str, engine: Engine, *, kills: bool, sample: int | None, seed: int) -> Iterator[dict[str, Any]]:
    """Have each write of a turn fail or kill, or so many of them."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whens = (BEFORE, WITHIN, AFTER) if kills else (WITHIN,) if engine == "sqlite" else (WITHIN, AFTER)
        passed = ran(turn, None, Path(folder, "counted"), engine)["points"]
        points = [
            Point(when, what, nth)
            for within, what, most in passed
            if within == WITHIN
            for when in whens
            for nth in range(1, most + 1)
        ]
        for number, point in enumerate(points if sample is None else source.sample(points, min(sample, len(points)))):
            how = {"kills": True} if kills else {"elsewhere": source.random() < 0.5}
            found = ran(turn, point, Path(folder, str(number)), engine, **how)
            yield {"when": point.when, "what": point.what, "nth": point.nth} | how | found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--turn", choices=TURNS, required=True, help="what is run")
    words.add_argument("--engine", choices=ENGINES, default="sqlite", help="where it is kept")
    words.add_argument("--kills", action="store_true", help="kill the process there, and before it and after it")
    words.add_argument("--sample", type=int, help="so many writes alone")
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    for found in failures(given.turn, given.engine, kills=given.kills, sample=given.sample, seed=given.seed):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
