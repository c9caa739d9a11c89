"""A failed write, or a kill in an edit or branch: a turn resumes with each effect once, a branch is whole (T4, T5)."""

import os
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.failing_writes import EDITED, NEW, OLD, SAID, WAYS
from support.kill_turn import HISTORY, NOTED, PLAIN
from support.processes import run_program

BOUND = 1500  # seconds for all writes of a turn, with other work on the machine
SAMPLE = 2

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(BOUND)]


def failures(turn: str, engine: Engine, **how: Any) -> list[dict[str, Any]]:
    seed = int.from_bytes(os.urandom(4), "big")
    found = run_program("failing_writes", BOUND, turn=turn, engine=engine, seed=seed, **how)
    assert found
    return found


def check(found: dict[str, Any]) -> None:
    """What must hold whichever write failed: the batch is gone as a whole, and both agents read the same afterwards."""
    assert len(found["states"]) == (0 if found["kills"] else 1), found
    assert found["gaps"] == [], found
    assert found["same"], found


def check_parts(found: dict[str, Any]) -> None:
    check(found)
    if found["when"] == "within" and found["what"] in ("the log: message", "the turn: begun"):
        assert found["states"] == ["no turn"], found
    assert found["effects"] == dict.fromkeys(PLAIN, 1), found
    assert found["noted"] == dict.fromkeys(NOTED, 1), found
    assert found["history"] == HISTORY, found
    assert found["told"] == ["All done."] * 3, found


def check_edit(found: dict[str, Any]) -> None:
    check(found)
    assert found["effects"] == {"old": 1, "new": 1}, found
    assert found["now"] == [NEW, "", "result", "Ordered."], found
    assert found["kept"] == [OLD, "", "result", "Ordered."], found
    assert found["threads"] == ["as it was", "t"], found


EVERY = pytest.param({}, marks=pytest.mark.soak, id="every write")
HOWS = pytest.mark.parametrize("how", [pytest.param({"sample": SAMPLE}, id="some writes"), EVERY])


@HOWS
@on_every_database
def test_turn_of_which_a_write_fails_resumes_with_each_effect_once(engine: Engine, how: dict[str, Any]) -> None:
    for found in failures("parts", engine, **how):
        check_parts(found)


@HOWS
@on_every_database
def test_an_edit_of_which_a_write_fails_has_changed_all_or_nothing(engine: Engine, how: dict[str, Any]) -> None:
    for found in failures("edit", engine, **how):
        check_edit(found)


@HOWS
@on_every_database
def test_an_edit_whose_process_is_killed_has_changed_all_or_nothing(engine: Engine, how: dict[str, Any]) -> None:
    for found in failures("edit", engine, kills=True, **how):
        check_edit(found)


# --- branches ---------------------------------------------------------------------------------------------------------

# What may be found on the thread and on the new one, and what they end with.
FOUND: dict[str, list[list[list[str]]]] = {
    "fork": [[SAID, []], [SAID, SAID]],
    "replay": [[SAID, []], [SAID, SAID[:3]], [SAID, SAID]],
    "edit back": [[SAID, []], [EDITED[:3], SAID], [EDITED, SAID]],
}
THEN = {"fork": [SAID, SAID], "replay": [SAID, SAID], "edit back": [EDITED, SAID]}


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", [3, pytest.param(None, marks=pytest.mark.soak, id="every point")])
@on_every_database
def test_a_branch_that_is_killed_is_there_or_is_not(engine: Engine, sample: int | None, way: str) -> None:
    kills = failures(way, engine, kills=True, sample=sample)
    for kill in kills:
        assert kill["leaks"] == [], kill
        assert kill["found"] in FOUND[way], kill
        assert kill["then"] == THEN[way], kill
        assert kill["on"] == [[*texts, "on", "Fine."] for texts in THEN[way]], kill
    found = [kill["found"] for kill in kills]
    # At every point all that may be found is found somewhere, so the points are those that matter.
    assert sample or [each for each in FOUND[way] if each not in found] == []
