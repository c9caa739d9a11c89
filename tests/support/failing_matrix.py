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
from support.kill_points import AFTER, BEFORE, WITHIN, Killer, Point, armed
from support.processes import forked

TURNS = {"parts": kill_turn.through, "edit": edited_turn.through}


def ran(turn: str, killer: Killer, home: Path) -> tuple[int, dict[str, Any]]:
    """Run a turn in a fork to its end; gives how the fork ended, and what came of the turn."""
    told = home / "told"

    def work() -> None:
        armed(killer)
        kill_prefix.numbered(home)
        found = asyncio.run(TURNS[turn](home, killer))
        points = [(when, what, most) for (when, what), most in killer.passed.items()]
        told.write_text(json.dumps(found | {"points": points}))

    ended = forked(work)
    return ended, json.loads(told.read_text()) if ended == 0 else {}


def failures(turn: str, engine: Engine, *, kills: bool, sample: int | None, seed: int) -> Iterator[dict[str, Any]]:
    """Have each write of a turn fail, or kill the process there, or do so at `sample` of them."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder, "counted"))
        ended, counted = ran(turn, Killer(None, home / "where"), home)
        assert ended == 0, f"the turn {turn!r} ended with {ended}"
        whens = (BEFORE, WITHIN, AFTER) if kills else (WITHIN,) if engine == "sqlite" else (WITHIN, AFTER)
        points = [
            Point(when, what, nth)
            for within, what, most in counted["points"]
            if within == WITHIN
            for when in whens
            for nth in range(1, most + 1)
        ]
        for number, point in enumerate(points if sample is None else source.sample(points, min(sample, len(points)))):
            home = made(engine, Path(folder, str(number)))
            if kills:
                ended, _ = ran(turn, Killer(point, home / "where"), home)
                assert ended == -signal.SIGKILL, f"the turn {turn!r} did not come to {point}"
                ended, found = ran(turn, Killer(None, home / "where"), home)
            else:
                ended, found = ran(turn, FailingWrites(point, home, engine, elsewhere=source.random() < 0.5), home)
            assert ended == 0, f"the turn {turn!r} did not come through with {point}"
            gaps, _ = kill_prefix.lost(home)
            removed(home)
            yield {"when": point.when, "what": point.what, "nth": point.nth, "gaps": gaps, "kills": kills} | found


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
