"""A turn whose process is killed resumes where it was; each effect happens once, or a person is asked (T5)."""

import os
import random
import re
from collections import Counter
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_crowd import ALONE, APART, GROUPINGS, MEMBERS, TOGETHER
from support.kill_matrix import PAGE, PHASES, page, read_table, rows_of
from support.kill_points import AFTER, QUEUED, WITHIN
from support.kill_turn import HISTORY, NOTED, PLAIN, SIDE_BY_SIDE
from support.pages import DOCS
from support.processes import run_program

pytestmark = pytest.mark.requirement("T5")

BOUND = 1500  # seconds for one phase of the matrix, with other work on the machine
SAMPLE = 3  # points of each phase
FEW = 2  # points of one phase, for each way in which transactions are grouped


def check(kill: dict[str, Any]) -> None:
    """What must hold wherever it was killed."""
    assert kill["leaks"] == [], kill
    assert kill["gaps"] == [], kill  # the disk has a prefix of what the turn did, with all that was committed
    assert kill["text"] == "All done.", kill
    assert kill["history"] == HISTORY, kill
    assert kill["effects"] == dict.fromkeys(PLAIN, 1), kill
    assert kill["noted"] == dict.fromkeys(NOTED, 1), kill
    # What was under way is asked of a person, and nothing else; a leaf that may run again did so at most once a kill.
    assert sorted(kill["asked"]) == kill["under_way"], kill
    assert len(kill["under_way"]) <= SIDE_BY_SIDE, kill
    assert kill["runs"] <= (3 if kill["phase"] == "resumed" else 2), kill


def check_beside(kill: dict[str, Any], grouping: str) -> None:
    """What must hold of it, and of the other threads' turns that died in the same moment."""
    check(kill)
    if kill["when"] == QUEUED:
        assert [part for part in kill["lost"] if part.startswith("novel/t ")], f"nothing was waiting: {kill}"
    if grouping == ALONE:
        return
    assert kill["crowd"] == {"effects": dict.fromkeys(MEMBERS, 1), "last": dict.fromkeys(MEMBERS, "result")}, kill
    if kill["when"] in (WITHIN, AFTER) and " effect of " not in kill["what"]:
        assert kill["group"] > len(MEMBERS) if grouping == TOGETHER else kill["group"] == 1, kill


def test_the_page_says_which_transaction_makes_each_row_durable_and_what_the_turn_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    words = " ".join(text.split())
    assert f"There are {len(PLAIN)} effects of plain leaves, {len(NOTED)} of leaves that are `idempotent`" in words
    assert f"{len(HISTORY)} messages in the agent's own database" in words
    assert f"At most {SIDE_BY_SIDE} effects of plain leaves" in words
    guide = (DOCS / "guides" / "pauses.md").read_text(encoding="utf-8")
    [section] = re.findall(r"## Transactions of a turn\n(.*?)(?:\n## |\Z)", guide, re.DOTALL)
    rows = {row.what for row in read_table() if row.when == WITHIN}
    assert {what for what in rows if what not in " ".join(section.split())} == set()


@pytest.mark.requirement("R7")
@pytest.mark.timeout(BOUND)
@on_every_database
def test_killed_turn_resumes_as_the_page_says(engine: Engine) -> None:
    rows = list(read_table())
    seed = int.from_bytes(os.urandom(4), "big")
    source = random.Random(seed)
    points: list[list[object]] = []
    for phase in PHASES:
        found = [(row, nth) for row in rows if row.phase == phase for nth in range(1, row.points + 1)]
        for row, nth in source.sample(found, SAMPLE):
            points.append([phase, row.when, row.what, nth])
    results = run_program("kill_matrix", BOUND, engine=engine, points=points)
    passed, kills = results[: len(PHASES)], results[len(PHASES) :]
    counted = Counter((one["phase"], f"{when} {what}") for one in passed for when, what, _ in one["points"])
    assert counted == {(row.phase, row.kind): row.points for row in rows}, "have the matrix write the page again"
    assert len(kills) == len(points)
    known = {(row.phase, row.kind): row for row in rows}
    for kill in kills:
        check(kill)
        row = known[kill["phase"], f"{kill['when']} {kill['what']}"]
        assert row.differs(kill) == [], f"seed {seed}: {row.phase}, {row.kind}, {kill['nth']}"


@pytest.mark.requirement("T4")
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("grouping", [TOGETHER, APART, None], ids=["together", "apart", "between queue and flush"])
@on_every_database
def test_kill_among_transactions_loses_and_repeats_no_effect(engine: Engine, grouping: str | None) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    source = random.Random(seed)
    how: dict[str, Any] = {"engine": engine, "phases": [source.choice(PHASES)], "sample": FEW, "seed": seed}
    how |= {"grouping": grouping or source.choice(GROUPINGS), "queued": grouping is None}
    kills = run_program("kill_matrix", BOUND, **how)
    assert len(kills) == FEW, how
    for kill in kills:
        check_beside(kill, how["grouping"])


@pytest.mark.soak
@pytest.mark.requirement("T4", "R7")
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("phase", PHASES)
@on_every_database
def test_kill_at_any_point_is_as_the_page_says(engine: Engine, phase: str, grouping: str, queued: bool) -> None:
    kills = run_program("kill_matrix", BOUND, engine=engine, phases=[phase], grouping=grouping, queued=queued)
    for kill in kills:
        check_beside(kill, grouping)
    if grouping == ALONE and not queued:
        assert rows_of(kills) == [row for row in read_table() if row.phase == phase]


@pytest.mark.soak
@pytest.mark.requirement("R7")
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("phase", PHASES)
@on_every_database
def test_turn_killed_at_once_resumes_with_each_effect_once(engine: Engine, phase: str) -> None:
    for kill in run_program("kill_matrix", BOUND, engine=engine, phases=[phase], at_once=True):
        check(kill)


def test_the_page_is_as_the_matrix_writes_it() -> None:
    assert page(read_table()) == PAGE.read_text(encoding="utf-8")
