"""A process is killed while messages arrive around transactions: each is read once, in order (T15, T16)."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from support.databases import Engine, on_every_database
from support.kill_inbox import EFFECTS
from support.processes import run_program

pytestmark = pytest.mark.requirement("T15", "T16")

BOUND = 1500  # seconds, with other work on the machine
FEW, MANY, SHARES = 3, 30, 5  # 300 kills over both databases


def check(kill: dict[str, Any]) -> None:
    """What must hold wherever a process was killed."""
    read: Sequence[str] = [text for text in kill["read"] if text[0] in "sq"]
    assert [text for text, count in Counter(read).items() if count > 1] == [], kill
    tried, there = _places(kill, "tried"), _places(kill, "put")
    assert there.keys() <= {*read}, kill
    assert {*read} <= tried.keys(), kill
    assert kill["left"] == [], kill
    for kind in ("steer", "queue"):
        same = [text for text in read if text.startswith(kind)]
        wrong = [(a, b) for b, a in combinations(same, 2) if a in there and there[a] < tried[b]]
        assert wrong == [], kill
    begun = bool(kill["kinds"]) and kill["kinds"][0] == kill["surface"] and "Do it." in [*kill["read"], *_task(kill)]
    queued = [text for text in read if text.startswith("queue")]
    expected = [*(EFFECTS[kill["surface"]] if begun else []), *queued]
    assert kill["effects"] == dict.fromkeys(expected, 1), kill


def _places(kill: dict[str, Any], what: str) -> dict[str, int]:
    """When what was written down of each message, as the number of the line."""
    said = [line.split() for line in kill["said"]]
    return {words[1]: place for place, words in enumerate(said) if words[0] == what}


def _task(kill: dict[str, Any]) -> list[str]:
    return ["Do it."] if "task" in kill["kinds"] else []


@pytest.mark.timeout(BOUND)
@on_every_database
def test_messages_around_transactions_survive_kills(engine: Engine) -> None:
    for kill in run_program("kill_inbox", BOUND, engine=engine, kills=FEW):
        check(kill)


@pytest.mark.soak
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("share", range(SHARES))
@on_every_database
def test_messages_around_transactions_survive_many_kills(engine: Engine, share: int) -> None:
    kills = run_program("kill_inbox", BOUND, engine=engine, kills=MANY)
    for kill in kills:
        check(kill)
    assert sum(bool(kill["killed"]) for kill in kills) > MANY // 2, "the processes end before they are killed"
