"""Writers of the same memory entries at the same time: one counts, and the tables agree afterwards (M1, M4)."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import answering, scripted_agent
from support.entry_edits import edit
from support.homes import database_of, rows
from support.memory_tables import problems, replace_entry
from support.overlaps import Between
from support.postgres import new_database
from support.processes import call_of, ending, next_line, start_script
from worldagent import Memory, WorldAgent
from worldagent.core.errors import UnknownEntry
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("M1", "M4")

ROUNDS = 10
BOUND = 30.0
SAID = {"reply": "Fine."}


async def wrong(agent: WorldAgent) -> list[str]:
    """What is wrong in the tables of entries."""
    return await database_of(agent).read(lambda transaction: problems(transaction.execute))


# --- two processes ----------------------------------------------------------------------------------------------------


async def edited_at_once(home: Path, entry: str, versions: list[int]) -> list[list[str]]:
    """What two processes say that both edit these versions of an entry, one after the other."""
    script = [call_of(edit, home, who, entry) for who in ("one", "two")]
    async with ending(await start_script(script[0])) as one, ending(await start_script(script[1])) as two:
        assert [await next_line(each) for each in (one, two)] == ["ready"] * 2
        said = []
        for version in versions:
            for process in (one, two):
                assert process.stdin is not None
                process.stdin.write(f"{version}\n".encode())
            said.append(sorted([await next_line(each) for each in (one, two)]))
    return said


@pytest.mark.on_every_database
async def test_of_two_processes_that_edit_one_version_one_wins(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        entry = await agent.memory.add("Ana lives in Bonn.", account="ana")
        said = await edited_at_once(tmp_path, entry.id, [*range(1, ROUNDS + 1), *[0] * ROUNDS])
        [after] = await agent.memory.list(account="ana")
        [(found, _)] = await agent.memory.search("edits 0", account="ana")
        assert await wrong(agent) == []
    assert said[:ROUNDS] == [["EntryChanged", f"version {number + 1}"] for number in range(1, ROUNDS + 1)]
    any_version = {each for pair in said[ROUNDS:] for each in pair}
    assert any_version == {f"version {number}" for number in range(ROUNDS + 2, 3 * ROUNDS + 2)}
    assert after.version == 1 + 3 * ROUNDS
    assert found == after


# --- what is removed while something else writes ----------------------------------------------------------------------


def noting(call: ScriptedCall) -> dict[str, Any]:
    """Notes one sentence of a conversation."""
    return {"notes": [{"text": "Ana lives in Bonn.", "replaces": ""}]} if "conversation" in call.fields else SAID


@pytest.mark.on_every_database
async def test_a_thread_that_is_removed_while_its_notes_are_made_gets_none(tmp_path: Path) -> None:
    asked, may = asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if "conversation" in call.fields:
            asked.set()
            await may.wait()
        return noting(call)

    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory()) as agent:
        await agent.thread("t", account="ana").converse("I live in Bonn.")
        distilling = asyncio.create_task(agent.memory.distil("t"))
        await asyncio.wait_for(asked.wait(), BOUND)
        await agent.upkeep.remove("t")
        may.set()
        assert await asyncio.wait_for(distilling, BOUND) == ()
        assert await agent.memory.list(account="ana", replaced=True) == ()
        assert await wrong(agent) == []
        assert await rows(agent, "wa_distilled") == 0


@pytest_asyncio.fixture
async def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[str, WorldAgent, WorldAgent]]:
    """The url of a Postgres database, and two agents on it; there is a thread `t` that was not distilled yet."""
    url = new_database()
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", url)
    async with (
        scripted_agent(tmp_path / "1", ScriptedLM(noting), memory=Memory()) as one,
        scripted_agent(tmp_path / "2", ScriptedLM(noting), memory=Memory()) as two,
    ):
        await one.thread("t", account="ana").converse("I live in Bonn.")
        yield url, one, two


Noted = tuple[str, WorldAgent, WorldAgent]


@pytest.mark.parametrize("first", ["notes", "removal"])
async def test_notes_that_are_written_during_a_removal_are_removed(
    noted: Noted, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    url, one, two = noted
    if first == "notes":
        between = Between(monkeypatch, url, "INSERT INTO wa_entry(", two.upkeep.remove("t"))
        await one.memory.distil("t")
    else:
        between = Between(monkeypatch, url, "DELETE FROM wa_message", two.memory.distil("t"))
        await one.upkeep.remove("t")
    assert between.future is not None
    await asyncio.wrap_future(between.future)
    assert await one.memory.list(account="ana") == ()
    assert await wrong(one) == []


async def test_an_edit_during_a_removal_leaves_no_word(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    url, one, two = noted
    [entry] = await one.memory.distil("t")
    between = Between(
        monkeypatch, url, "SELECT key, workspace", two.memory.edit(entry.id, "Ana lives in Ulm.", account="ana")
    )
    await one.upkeep.remove("t")
    assert between.future is not None
    assert isinstance(await asyncio.to_thread(between.future.exception, BOUND), UnknownEntry)
    assert await wrong(one) == []


async def test_two_of_three_that_contradict_are_forgotten_at_once_and_the_first_counts_again(
    noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, one, two = noted
    first, second, third = [await one.memory.add(f"Ana lives in {town}.") for town in ("Bonn", "Ulm", "Kiel")]
    entries = one._runner.parts.stores.entries  # only distilling has a name for it
    await replace_entry(entries, "novel", first.id, second.id)
    await replace_entry(entries, "novel", second.id, third.id)
    between = Between(monkeypatch, url, "DELETE FROM wa_entry WHERE key", two.memory.forget(third.id))
    await one.memory.forget(second.id)
    assert between.future is not None
    assert await asyncio.wrap_future(between.future) == 1
    assert [entry.text for entry in await one.memory.list()] == ["Ana lives in Bonn."]
    assert await wrong(one) == []
