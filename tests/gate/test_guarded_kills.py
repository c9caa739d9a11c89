"""A guarded turn whose process is killed at any point goes on with the same handles, prompts and labels (H11, T5)."""

import os
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_guarded import ANSWER, EFFECTS, QUESTIONS
from support.processes import run_program

pytestmark = [pytest.mark.requirement("H11", "T5"), pytest.mark.timeout(1500)]

SAMPLE = 3  # points of each phase


def check(kill: dict[str, Any]) -> None:
    """What must hold wherever it was killed."""
    assert kill["effects"] == dict.fromkeys(EFFECTS, 1), kill
    assert kill["text"] == ANSWER, kill
    assert kill["read"] == [], kill
    assert kill["differs"] == [], kill  # each model received the same bytes in every process
    assert kill["gaps"] == [], kill
    assert kill["leaks"] == [], kill
    # A reader is asked again at most once, if its answer was not recorded yet.
    assert set(kill["asked"]) == set(QUESTIONS), kill
    assert max(kill["asked"].values()) <= 2, kill
    if kill["labels"]:  # else it was answered before it was killed
        assert kill["labels"]["arguments"] == {"to": "bob@corp.com", "what": "paid"}, kill
        assert kill["labels"]["labels"] == {"to": {"origins": ["search.sender"], "form": "value"}}, kill


@pytest.mark.requirement("R7")
@on_every_database
def test_killed_guarded_turn_goes_on(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("kill_guarded", 600, engine=engine, sample=SAMPLE, seed=seed)
    assert len(kills) == 2 * SAMPLE, seed
    for kill in kills:
        check(kill)


@on_every_database
def test_reader_whose_answer_is_recorded_is_not_asked_again(engine: Engine) -> None:
    [kill] = run_program("kill_guarded", 600, engine=engine, between=True)
    check(kill)
    assert kill["asked"] == dict.fromkeys(QUESTIONS, 1), kill


@pytest.mark.soak
@pytest.mark.requirement("R7")
@on_every_database
def test_guarded_turn_killed_at_any_point_goes_on(engine: Engine) -> None:
    for kill in run_program("kill_guarded", 1500, engine=engine):
        check(kill)
