"""A full disk, a cut connection, a lost answer to a commit: a turn goes on with each effect once (T4, T5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.failing_writes import NEW, OLD
from support.house import ROOT
from support.kill_turn import HISTORY, NOTED, PLAIN
from support.processes import clean_environment

BOUND = 1500  # seconds for all writes of a turn, with other work on the machine
SAMPLE = 4

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(BOUND)]


def failures(turn: str, engine: Engine, *words: str) -> list[dict[str, Any]]:
    """Run the matrix in a process that has no threads yet, so that it can fork."""
    program = str(ROOT / "tests" / "support" / "failing_writes.py")
    argv = [sys.executable, "-P", program, "--turn", turn, "--engine", engine, *words]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found
    return found


def sampled() -> tuple[str, ...]:
    return ("--sample", str(SAMPLE), "--seed", str(int.from_bytes(os.urandom(4), "big")))


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
    for found in failures("parts", engine, *sampled()):
        check_parts(found)


@on_every_database
def test_an_edit_of_which_a_write_fails_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine, *sampled()):
        check_edit(found)


@on_every_database
def test_an_edit_whose_process_is_killed_has_changed_all_or_nothing(engine: Engine) -> None:
    for found in failures("edit", engine, "--kills", *sampled()):
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
    for found in failures("edit", engine, "--kills"):
        check_edit(found)
