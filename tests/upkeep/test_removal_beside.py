"""A thread that is removed on Postgres while another process runs a message of it again: one comes first (D10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from support.agents import answering, scripted_agent
from support.postgres import new_database
from worldagent import WorldAgent
from worldagent.core.errors import UnknownMessage
from worldagent.storage import postgres as database_module

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname=current_database() AND wait_event_type='Lock'"
_BOUND = 30.0

Talked = tuple[str, WorldAgent, WorldAgent]
"""The address of a database, and two agents on it."""


class Between:
    """Begins work on the loop when a statement was run for the first time, and goes on once that is over or waits."""

    def __init__(self, patch: pytest.MonkeyPatch, url: str, statement: str, work: Coroutine[Any, Any, Any]) -> None:
        self.future: Future[Any] | None = None
        loop, execute = asyncio.get_running_loop(), database_module._PostgresTransaction.execute

        def hooked(
            transaction: database_module._PostgresTransaction, sql: str, params: Sequence[object] = ()
        ) -> list[tuple[Any, ...]]:
            rows = execute(transaction, sql, params)
            if self.future is None and sql.startswith(statement):
                self.future = asyncio.run_coroutine_threadsafe(work, loop)
                self._wait(url)
            return rows

        patch.setattr(database_module._PostgresTransaction, "execute", hooked)

    def _wait(self, url: str) -> None:
        assert self.future is not None
        until = time.monotonic() + _BOUND
        with psycopg.connect(url, autocommit=True) as connection:
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    self.future.exception(timeout=0.02)
                    return
                if connection.execute(_WAITS).fetchone() is not None:
                    return
        raise AssertionError("it neither ended nor waits")


@pytest_asyncio.fixture
async def talked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Talked]:
    """Two agents, and a thread `t1` with two turns."""
    url = new_database()
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", url)
    async with (
        scripted_agent(tmp_path / "1", answering()) as agent,
        scripted_agent(tmp_path / "2", answering()) as other,
    ):
        for text in ("one", "two"):
            await agent.thread("t1").converse(text)
        yield url, agent, other


@pytest.mark.requirement("T4")
async def test_what_is_replayed_first_keeps_what_it_stands_on(talked: Talked, monkeypatch: pytest.MonkeyPatch) -> None:
    url, agent, other = talked
    said = await agent.thread("t1").history()
    between = Between(monkeypatch, url, "SELECT depth, CASE", other.upkeep.remove("t1"))
    turn = await agent.thread("t1").replay(to="again")
    assert between.future is not None
    removed = await asyncio.wrap_future(between.future)
    assert turn.status == "done"
    assert removed.messages == 2, "those that the replay stands on stay"
    assert (await agent.thread("again").history())[:2] == said[:2]


@pytest.mark.requirement("T4")
async def test_what_is_removed_first_is_an_unknown_message(talked: Talked, monkeypatch: pytest.MonkeyPatch) -> None:
    url, agent, other = talked
    replay = agent.thread("t1").replay(to="again")
    between = Between(monkeypatch, url, "SELECT id, parent FROM wa_message WHERE thread", replay)
    removed = await other.upkeep.remove("t1")
    assert between.future is not None
    with pytest.raises(UnknownMessage):
        await asyncio.wrap_future(between.future)
    assert removed is not None
    assert removed.messages == 4
    assert await agent.threads() == ()
