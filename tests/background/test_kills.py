"""Work in the background whose processes are killed: each effect and each report of an end happens once (T17, T5)."""

import sys

import pytest

from support.databases import Engine, on_every_database
from support.processes import run_program

BOUND = 1500  # seconds, with other work on the machine
FEW, MANY = 4, 300  # kills

pytestmark = [pytest.mark.requirement("T17", "T5"), pytest.mark.timeout(BOUND)]


def check(engine: Engine, kills: int) -> None:
    """What must hold after so many kills."""
    [found] = run_program("kill_background", BOUND, engine=engine, kills=kills)
    sys.stdout.write(f"{found}\n")  # with the seed; pytest shows it where the test fails
    assert (found["repeated"], found["lost"], found["effects"]) == ([], [], found["works"])
    assert (found["reported_twice"], found["not_reported"], found["reports"]) == ([], [], found["works"])


@on_every_database
def test_killed_work_goes_on_in_the_next_process_with_each_effect_and_each_report_once(engine: Engine) -> None:
    check(engine, FEW)


@pytest.mark.soak
@on_every_database
def test_work_that_is_killed_300_times_has_each_effect_and_each_report_once(engine: Engine) -> None:
    check(engine, MANY)


@on_every_database
def test_report_of_a_task_that_is_killed_before_its_end_is_written_has_its_result(engine: Engine) -> None:
    [found] = run_program("kill_beginning", BOUND, engine=engine, at_its_end=True)
    assert found == {"said": [["message", "re report"]], "queued": [], "marks": ["worker:conversation"]}


def check_works(engine: Engine, **given: int) -> None:
    """What must hold of tasks over several processes that are killed."""
    [found] = run_program("kill_works", BOUND, engine=engine, **given)
    sys.stdout.write(f"{found}\n")  # with the seed, and the seconds before and after the last kill
    assert (found["repeated"], found["lost"]) == ([], [])
    assert (found["reported_twice"], found["not_reported"]) == ([], [])
    assert found["kills"] >= given["kills"] // 4, "the processes are done before they are killed"


@on_every_database
def test_tasks_over_two_killed_processes_have_each_effect_and_each_report_once(engine: Engine) -> None:
    check_works(engine, count=24, processes=2, kills=4)


@pytest.mark.soak
@on_every_database
def test_a_thousand_tasks_over_four_killed_processes_have_each_effect_and_each_report_once(engine: Engine) -> None:
    check_works(engine, count=1000, processes=4, kills=40)
