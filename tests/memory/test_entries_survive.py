"""Entries in copies of the storage, backups and exports of threads: all are there, and they are found alike (M4)."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.homes import database_of, found
from support.memory_tables import problems
from support.postgres import new_database
from worldagent import Memory, Storage, WorldAgent
from worldagent.agent.copying import copy_storage
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("M1", "M4")

ODD = "Ana \N{SNOWMAN} says \\u0000 'no' to \"nuts\",\nand 我喜欢苹果 in Köln."
TOWNS = ("Ana lives in Bonn, in the street of the old tanners.", "Ana lives in Ulm, in the street of the river.")


def reply(call: ScriptedCall) -> dict[str, Any]:
    if "conversation" not in call.fields:
        return {"reply": "Fine."}
    return {"notes": [{"text": TOWNS[1], "replaces": json.loads(call.fields["known"])[0]["id"]}]}


def agent_of(where: Storage) -> WorldAgent:
    settings = {"database_url": where.url} if where.url else {}
    return scripted_agent(where.resolve(), ScriptedLM(reply), memory=Memory(), settings=settings)


async def written(agent: WorldAgent) -> None:
    """Have entries of each kind: with all fields, of the workspace, and one that a note of a thread replaced."""
    expires = datetime(2031, 1, 2, tzinfo=UTC)
    more: dict[str, Any] = {"kind": "fact", "tags": ["b", "a"], "classification": "secret", "expires": expires}
    await agent.memory.add(ODD, account="ana", untrusted=True, **more)
    await agent.memory.add("The harbour opens at six.", key="k")
    await agent.memory.add(TOWNS[0], account="ana")
    await agent.thread("t", account="ana").converse("I have moved.")
    [note] = await agent.memory.distil("t")
    assert note.text == TOWNS[1]


async def all_of(agent: WorldAgent) -> tuple[list[Any], list[Any]]:
    """All entries, and what searches find; checks that the tables agree."""
    lines = [line for account in ("ana", None) async for line in agent.memory.export(account=account)]
    searched = [await agent.memory.search(text, account="ana") for text in ("苹果 no", "the street", "harbour")]
    assert await database_of(agent).read(lambda transaction: problems(transaction.execute)) == []
    assert len(lines) == 4
    assert [len(each) for each in searched] == [1, 1, 1]
    return lines, searched


@pytest.mark.requirement("T5")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("one", "other"), [("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_a_copy_of_the_storage_and_a_copy_of_that_have_all_entries(tmp_path: Path, one: str, other: str) -> None:
    places = [
        Storage(home=tmp_path / str(number), url=new_database() if engine == "postgres" else None)
        for number, engine in enumerate((one, other, one))
    ]
    async with agent_of(places[0]) as agent:
        await written(agent)
        before = await all_of(agent)
    for source, target in pairwise(places):
        copied = await copy_storage(source, target)
        assert copied.parts["wa_entry"].rows == 4
        async with agent_of(target) as agent:
            assert await all_of(agent) == before
    async with agent_of(places[-1]) as agent:
        assert await agent.memory.add("written again", key="k") == before[1][2][0][0]
        assert await agent.memory.distil("t") == ()
        await agent.upkeep.remove("t")  # what came from it goes, and what that had replaced counts again
        assert [entry.text for entry, _ in await agent.memory.search("lives", account="ana")] == [TOWNS[0]]


async def test_a_backup_has_the_entries_of_its_moment(tmp_path: Path) -> None:
    async with agent_of(Storage(home=tmp_path / "home")) as agent:
        await written(agent)
        before = await all_of(agent)
        await agent.upkeep.back_up(tmp_path / "copy")
        await agent.memory.forget_all(account="ana")
        assert await agent.memory.list(account="ana", kind="fact") == ()
    async with agent_of(Storage(home=tmp_path / "copy")) as agent:
        assert await all_of(agent) == before


@pytest.mark.on_every_database
async def test_an_export_of_a_thread_has_none_of_the_entries_that_came_from_it(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    async with scripted_agent(tmp_path / "home", ScriptedLM(reply), memory=Memory()) as agent:
        await written(agent)
        await agent.upkeep.export("t", file)
        assert all(text not in file.read_text() for text in TOWNS)
        await agent.upkeep.import_thread(file, to="copy")
        await agent.upkeep.remove("t")
        assert found(tmp_path / "home", [TOWNS[1]]) == []
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute)) == []
        await agent.thread("copy", account="ana").converse("And now?")
        [note] = await agent.memory.distil("copy")
        assert (note.text, note.source.thread) == (TOWNS[1], "copy")
