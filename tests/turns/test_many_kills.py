"""Fifty turns at once whose process is killed at random instants: each effect of every turn happens once (T5)."""

import sys
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_many import NOTED, PLAIN, THREADS
from support.processes import run_program

BOUND = 1500  # seconds, with other work on the machine
FEW, MANY = 3, 200  # kills

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(BOUND)]


def killed(engine: Engine, kills: int) -> dict[str, Any]:
    """Kill so many times; it chooses the seed."""
    [found] = run_program("kill_many", BOUND, engine=engine, kills=kills)
    sys.stdout.write(f"{found}\n")  # with the seed; pytest shows it where the test fails
    return found


def check(found: dict[str, Any], kills: int) -> None:
    """What must hold after so many kills."""
    assert found["kills"] == kills
    assert found["turns"] >= THREADS
    assert (found["lost"], found["repeated"], found["unknown"], found["broken"]) == ([], [], [], []), found["seed"]
    assert found["effects"] == found["turns"] * len((*PLAIN, *NOTED))


@on_every_database
def test_fifty_turns_whose_process_is_killed_a_few_times_have_each_effect_once(engine: Engine) -> None:
    check(killed(engine, FEW), FEW)


@pytest.mark.soak
@on_every_database
def test_fifty_turns_whose_process_is_killed_200_times_have_each_effect_once(engine: Engine) -> None:
    found = killed(engine, MANY)
    check(found, MANY)
    assert found["asked"] > 0, "no kill came in the middle of an effect"
