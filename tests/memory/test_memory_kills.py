"""Writes of memory entries in a killed process that are done again: nothing is half there, twice or left (M1, M4)."""

import os
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_memory import CASES
from support.processes import run_program

pytestmark = pytest.mark.requirement("M1", "M4", "T5")

BOUND = 1500  # seconds, with other work on the machine


def check(kill: dict[str, Any], seed: int | None = None) -> None:
    """What must hold wherever it was killed."""
    assert kill["broken"] == [], (kill, seed)
    assert isinstance(kill["killed"], int), (kill, seed)  # one of the states between two transactions
    assert kill["again"] == len(CASES[kill["case"]].states) - 1, (kill, seed)
    assert kill["left"] == [], (kill, seed)


@pytest.mark.timeout(BOUND)
@on_every_database
def test_killed_writes_of_entries_are_done_again(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    sample = 2 if engine == "sqlite" else 1
    kills = run_program("kill_memory", BOUND, engine=engine, cases=[*CASES], sample=sample, seed=seed)
    assert len(kills) == len(CASES) * sample
    for kill in kills:
        check(kill, seed)


@pytest.mark.soak
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("case", CASES)
@on_every_database
def test_writes_of_entries_that_are_killed_at_any_point_are_done_again(engine: Engine, case: str) -> None:
    kills = run_program("kill_memory", BOUND, engine=engine, cases=[case])
    assert kills
    for kill in kills:
        check(kill)
