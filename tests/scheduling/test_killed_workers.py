"""Submitted tasks whose workers are killed with `kill -9` at random instants: each effect once, none lost (T5, D10)."""

import sys
from typing import Any

import pytest

from support.databases import Engine
from support.processes import run_program

BOUND = 1500  # seconds, with other work on the machine

pytestmark = [pytest.mark.requirement("T5"), pytest.mark.timeout(BOUND)]


def check(engine: Engine, *, workers: int, tasks: int, kills: int) -> dict[str, Any]:
    """Kill, and say what must hold then."""
    [found] = run_program("kill_workers", BOUND, engine=engine, workers=workers, tasks=tasks, kills=kills)
    sys.stdout.write(f"{found}\n")  # with the seed and the time of a takeover; pytest shows it where the test fails
    assert found["kills"] > 0
    assert found["statuses"] == {"done": tasks}
    assert (found["ids"], found["turns"]) == (tasks, tasks)  # a start is one turn, however often it was taken
    assert (found["lost"], found["repeated"], found["notes"]) == ([], [], True), found["seed"]
    return found


def test_two_workers_of_which_one_is_killed_a_few_times() -> None:
    check("sqlite", workers=2, tasks=60, kills=2)


@pytest.mark.soak
def test_two_workers_on_sqlite_and_2000_tasks() -> None:
    found = check("sqlite", workers=2, tasks=2000, kills=20)
    assert found["taken_over"] > 0


@pytest.mark.soak
def test_four_workers_on_postgres_and_2000_tasks() -> None:
    found = check("postgres", workers=4, tasks=2000, kills=40)
    assert found["taken_over"] > 0
