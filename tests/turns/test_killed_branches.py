"""A fork, a replay or an edit whose process is killed is there or is not, and its turn resumes (T4, T5)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_branches import EDITED, OLD, WAYS
from support.processes import run_program

BOUND = 600  # seconds, with other work on the machine
SAMPLE = 3  # points of each way

# What may be found on the thread and on the new one, and what they end with.
FOUND: dict[str, list[list[list[str]]]] = {
    "fork": [[OLD, []], [OLD, OLD]],
    "replay": [[OLD, []], [OLD, OLD[:3]], [OLD, OLD]],
    "edit": [[OLD, []], [EDITED[:3], OLD], [EDITED, OLD]],
}
THEN = {"fork": [OLD, OLD], "replay": [OLD, OLD], "edit": [EDITED, OLD]}


def check(kill: dict[str, Any]) -> None:
    assert kill["leaks"] == [], kill
    assert kill["found"] in FOUND[kill["way"]], kill
    assert kill["then"] == THEN[kill["way"]], kill
    assert kill["on"] == [[*texts, "on", "Fine."] for texts in THEN[kill["way"]]], kill


@pytest.mark.requirement("T4", "T5", "R7")
@pytest.mark.timeout(BOUND)
@on_every_database
def test_a_branch_that_is_killed_is_there_or_is_not(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("kill_branches", BOUND, engine=engine, sample=SAMPLE, seed=seed)
    assert {kill["way"] for kill in kills} == set(WAYS), seed
    for kill in kills:
        check(kill)


@pytest.mark.soak
@pytest.mark.requirement("T4", "T5", "R7")
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("way", WAYS)
@on_every_database
def test_a_branch_that_is_killed_at_any_point_is_there_or_is_not(engine: Engine, way: str) -> None:
    kills = run_program("kill_branches", BOUND, engine=engine, ways=[way])
    for kill in kills:
        check(kill)
    # All that may be found is found somewhere, so the points are those that matter.
    assert [found for found in FOUND[way] if found not in [kill["found"] for kill in kills]] == []
