"""A full disk, a cut connection, a lost answer to a commit: a turn goes on with each effect once (T4, T5)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.failing_writes import NEW, OLD
from support.kill_turn import HISTORY, NOTED, PLAIN
from support.processes import run_program

BOUND = 1500  # seconds for all writes of a turn, with other work on the machine
SAMPLE = 4

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(BOUND)]


def failures(turn: str, engine: Engine, **how: Any) -> list[dict[str, Any]]:
    found = run_program("failing_writes", BOUND, turn=turn, engine=engine, **how)
    assert found
    return found


def sampled() -> dict[str, Any]:
    return {"sample": SAMPLE, "seed": int.from_bytes(os.urandom(4), "big")}


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


@on_every_database
def test_a_turn_of_which_a_write_fails_goes_on_with_each_effect_once(engine: Engine) -> None:
    for found in failures("parts", engine, **sampled()):
        check_parts(found)


@on_every_database
def test_an_edit_of_which_a_write_fails_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine, **sampled()):
        check_edit(found)


@on_every_database
def test_an_edit_whose_process_is_killed_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine, kills=True, **sampled()):
        check_edit(found)


@pytest.mark.soak
@on_every_database
def test_a_turn_of_which_any_write_fails_goes_on_with_each_effect_once(engine: Engine) -> None:
    for found in failures("parts", engine):
        check_parts(found)


@pytest.mark.soak
@on_every_database
def test_an_edit_of_which_any_write_fails_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine):
        check_edit(found)


@pytest.mark.soak
@on_every_database
def test_an_edit_whose_process_is_killed_at_any_write_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine, kills=True):
        check_edit(found)
