"""A fork, a replay or an edit whose process is killed is there or is not, and its turn resumes (T4, T5)."""

import os

import pytest

from support.databases import Engine, on_every_database
from support.failing_writes import EDITED, SAID, WAYS
from support.processes import run_program

BOUND = 600  # seconds, with other work on the machine

# What may be found on the thread and on the new one, and what they end with.
FOUND: dict[str, list[list[list[str]]]] = {
    "fork": [[SAID, []], [SAID, SAID]],
    "replay": [[SAID, []], [SAID, SAID[:3]], [SAID, SAID]],
    "edit back": [[SAID, []], [EDITED[:3], SAID], [EDITED, SAID]],
}
THEN = {"fork": [SAID, SAID], "replay": [SAID, SAID], "edit back": [EDITED, SAID]}


@pytest.mark.requirement("T4", "T5", "R7")
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", [3, pytest.param(None, marks=pytest.mark.soak, id="every point")])
@on_every_database
def test_a_branch_that_is_killed_is_there_or_is_not(engine: Engine, sample: int | None, way: str) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("failing_writes", BOUND, turn=way, engine=engine, kills=True, sample=sample, seed=seed)
    for kill in kills:
        assert kill["leaks"] == [], kill
        assert kill["found"] in FOUND[way], kill
        assert kill["then"] == THEN[way], kill
        assert kill["on"] == [[*texts, "on", "Fine."] for texts in THEN[way]], kill
    found = [kill["found"] for kill in kills]
    assert found
    # At every point all that may be found is found somewhere, so the points are those that matter.
    assert sample or [each for each in FOUND[way] if each not in found] == []
