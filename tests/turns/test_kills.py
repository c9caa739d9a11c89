"""A turn whose process is killed goes on where it stood, and every effect happens exactly once (T5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.house import ROOT
from support.kill_matrix import EFFECTS

BOUND = 1500  # seconds for the whole matrix, with other work on the machine


def kills(folder: Path, *, every: int, seed: int) -> list[dict[str, Any]]:
    """Kill a turn at every `every`th point; what became of each."""
    words = [
        sys.executable,
        "-P",
        str(ROOT / "tests" / "support" / "kill_matrix.py"),
        str(folder),
        str(every),
        str(seed),
    ]
    paths = os.pathsep.join([str(ROOT / ".dev"), str(ROOT / "tests")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORLDAGENT_")}
    done = subprocess.run(words, env=kept | {"PYTHONPATH": paths}, capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, Any]]) -> None:
    for kill in found:
        if kill["state"] == "no turn":  # before the turn was written down, nothing had happened
            assert not kill["effects"], kill
            continue
        assert kill["effects"] == dict.fromkeys(EFFECTS, 1), kill
        assert kill["text"] == "All done.", kill
        # What was under way is asked of a person, and nothing else.
        assert kill["uncertain"] <= 3, kill
    assert len({kill["where"] for kill in found}) >= 3


@pytest.mark.requirement("T5")
@pytest.mark.timeout(BOUND)
def test_a_turn_that_is_killed_goes_on_and_each_effect_happens_once(tmp_path: Path) -> None:
    check(kills(tmp_path, every=11, seed=int.from_bytes(os.urandom(2), "big")))


@pytest.mark.soak
@pytest.mark.requirement("T5")
@pytest.mark.timeout(BOUND)
def test_a_turn_that_is_killed_at_any_point_goes_on_and_each_effect_happens_once(tmp_path: Path) -> None:
    found = kills(tmp_path, every=1, seed=0)
    check(found)
    assert set(Counter(kill["where"] for kill in found)) == {
        f"{when} {what}" for when in ("before", "after") for what in ("a write", "a checkpoint", "an effect")
    }
