"""What a reader keeps in SQLite's log of a thread that is removed. A server cleans up its own files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.removed import WORDS, found
from worldagent.core.errors import StorageUnavailable
from worldagent.storage import sqlite

NAME = "a-thread-whose-name-is-long-enough-to-be-looked-for"


@pytest.mark.requirement("T4")
async def test_what_a_reader_keeps_in_the_log_is_said_and_pruning_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT", 0.2)
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread(NAME).converse(WORDS["message"])
        with closing(sqlite3.connect(tmp_path / "home" / "agent.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM wa_message").fetchall()
            with pytest.raises(StorageUnavailable, match=r"all rows of the thread .* are removed, but"):
                await agent.upkeep.remove(NAME)
            assert found(tmp_path / "home", [WORDS["message"]]), "else the error says what is not so"
        assert await agent.thread(NAME).history() == ()
        await agent.upkeep.prune()
        assert found(tmp_path / "home", [WORDS["message"], NAME]) == []
