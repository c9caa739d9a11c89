"""A turn that follows another of the same agent reads nothing, and one that does not reads what is there (D21)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.storage import Transaction
from worldagent.storage.sqlite import SqliteDatabase
from worldagent.testing import ScriptedLM


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read from a database, beside what is read when a thread's owner takes its epoch."""
    found: list[str] = []
    read = SqliteDatabase.read

    async def noted(self: SqliteDatabase, work: Callable[[Transaction], Any]) -> Any:
        if "RoleStore" not in work.__qualname__:  # roles are remembered elsewhere, for as long as is set
            found.append(work.__qualname__)
        return await read(self, work)

    monkeypatch.setattr(SqliteDatabase, "read", noted)
    return found


@pytest.mark.requirement("H3")
async def test_a_turn_reads_nothing_beside_its_epoch_and_the_next_one_nothing_at_all(
    tmp_path: Path, reads: list[str]
) -> None:
    lm = ScriptedLM([{"reply": "One."}, {"reply": "Two."}])
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        reads.clear()
        await thread.converse("first")
        await thread.converse("second")
        assert reads == []
    assert all(each in lm.calls[1].text for each in ("first", "One.", "second"))


@pytest.mark.requirement("T4")
async def test_a_turn_after_one_of_another_process_sees_what_was_said_there(tmp_path: Path) -> None:
    lm, other_lm = answering("Mine."), answering("Theirs.")
    async with scripted_agent(tmp_path, lm) as agent, scripted_agent(tmp_path, other_lm) as other:
        for number in range(3):
            await agent.thread("t").converse(f"mine {number}")
            await other.thread("t").converse(f"theirs {number}")
        history = await agent.thread("t").history()
    assert [message.body["text"] for message in history if message.kind == "message"] == [
        f"{whose} {number}" for number in range(3) for whose in ("mine", "theirs")
    ]
    assert "theirs 1" in lm.calls[-1].text
    assert "mine 2" in other_lm.calls[-1].text


async def test_of_a_thread_with_a_summary_only_the_marks_are_read(tmp_path: Path, reads: list[str]) -> None:
    lm = ScriptedLM(lambda call: {"summary": "All of it."} if "messages" in call.fields else {"reply": "Fine."})
    async with scripted_agent(tmp_path, lm, settings={"history_limit": 4}) as agent:
        for number in range(8):
            reads.clear()
            await agent.thread("t").converse(f"n{number}")
            if len(lm.calls) > number + 2 and "messages" not in lm.calls[-2].fields:
                assert {name.partition(".")[0] for name in reads} == {"KeptMessages"}
                break
        else:
            pytest.fail("no turn began behind a summary")
