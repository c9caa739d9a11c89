"""Fifty turns at once whose process is killed at random instants: each effect of every turn happens once (T5)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.house import ROOT
from support.kill_many import NOTED, PLAIN, THREADS
from support.processes import clean_environment

BOUND = 1500  # seconds, with other work on the machine
FEW, MANY = 3, 200  # kills

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(BOUND)]


def killed(engine: Engine, kills: int) -> dict[str, Any]:
    """Kill in a process that has no threads yet, so that it can fork; it chooses the seed and tells it."""
    program = str(ROOT / "tests" / "support" / "kill_many.py")
    argv = [sys.executable, "-P", program, "--engine", engine, "--kills", str(kills)]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    sys.stdout.write(f"{told}\n")  # with the seed; pytest shows it where the test fails
    return told


def check(told: dict[str, Any], kills: int) -> None:
    """What must hold after so many kills."""
    assert told["kills"] == kills
    assert told["turns"] >= THREADS
    assert (told["lost"], told["repeated"], told["unknown"], told["broken"]) == ([], [], [], []), told["seed"]
    assert told["effects"] == told["turns"] * len((*PLAIN, *NOTED))


@on_every_database
def test_fifty_turns_whose_process_is_killed_a_few_times_have_each_effect_once(engine: Engine) -> None:
    check(killed(engine, FEW), FEW)


@pytest.mark.soak
@on_every_database
def test_fifty_turns_whose_process_is_killed_200_times_have_each_effect_once(engine: Engine) -> None:
    told = killed(engine, MANY)
    check(told, MANY)
    assert told["asked"] > 0, "no kill came in the middle of an effect"
