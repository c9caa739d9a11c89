"""Writes of memory entries in a killed process that are done again: nothing is half there, twice or left (M1, M4)."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.databases import Engine, on_every_database
from support.homes import change, database_of
from support.kill_memory import CASES
from support.memory_tables import problems, replace_entry
from support.processes import run_program
from worldagent import Memory

pytestmark = pytest.mark.requirement("M1", "M4", "T5")

BOUND = 1500  # seconds, with other work on the machine


def check(kill: dict[str, Any], seed: int | None = None) -> None:
    """What must hold wherever it was killed."""
    assert kill["broken"] == [], (kill, seed)
    assert isinstance(kill["killed"], int), (kill, seed)  # one of the states between two transactions
    assert kill["again"] == len(CASES[kill["case"]].states) - 1, (kill, seed)
    assert kill["left"] == [], (kill, seed)


@pytest.mark.timeout(BOUND)
@on_every_database
def test_killed_writes_of_entries_are_done_again(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    sample = 2 if engine == "sqlite" else 1
    kills = run_program("kill_memory", BOUND, engine=engine, cases=[*CASES], sample=sample, seed=seed)
    assert len(kills) == len(CASES) * sample
    for kill in kills:
        check(kill, seed)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM wa_entry_word WHERE words=3",
        "DELETE FROM wa_entry WHERE replaced IS NULL",
        "UPDATE wa_entry SET text='Ana sings'",
        "UPDATE wa_entry SET replaced=5 WHERE replaced IS NOT NULL",
        "UPDATE wa_entry_count SET words=words + 1",
        "INSERT INTO wa_distilled(thread, turn) VALUES('novel/t', 'turn_1')",
        "INSERT INTO wa_entry_vector(entry, place, made, vector) VALUES(5, 5, 5, '')",
        'UPDATE wa_entry SET thread=\'novel/t\', source=\'{"by": "model", "turn": "turn_1"}\'',
    ],
)
async def test_tables_that_do_not_agree_are_found(tmp_path: Path, statement: str) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        older, newer = await agent.memory.add("Ana"), await agent.memory.add("Ana eats nuts")
        await replace_entry(agent._runner.parts.stores.entries, "novel", older.id, newer.id)
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute)) == []
        await change(agent, statement, ())
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute))


@pytest.mark.soak
@pytest.mark.timeout(BOUND)
@pytest.mark.parametrize("case", CASES)
@on_every_database
def test_writes_of_entries_that_are_killed_at_any_point_are_done_again(engine: Engine, case: str) -> None:
    kills = run_program("kill_memory", BOUND, engine=engine, cases=[case])
    assert kills
    for kill in kills:
        check(kill)
