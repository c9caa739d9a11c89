"""Pruning: checkpoints go by count and by age, and the usage of days that are over (T5)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, scripted_agent, shape, which
from support.homes import checkpoints_of, rows, selected
from worldagent import WorldAgent
from worldagent.core.errors import EventsGone, LimitReached
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock


def _reply(call: ScriptedCall) -> dict[str, Any]:
    if "request" in call.fields:
        return {"result": "Judged."}
    return {"reply": "Fine.", "calls": []}


@asynccontextmanager
async def opened(home: Path, clock: VirtualClock | None = None, **settings: Any) -> AsyncGenerator[WorldAgent]:
    shapes = [shape(which, "ask")]
    lm = ScriptedLM(_reply)
    async with scripted_agent(home, lm, settings=settings, workers=[CRITIC], shapes=shapes, clock=clock) as agent:
        yield agent


async def kept(agent: WorldAgent, like: str = "%") -> dict[str, int]:
    """How many rows each table of checkpoints has, of keys that are `like` this."""
    return {table: await rows(agent, table, "thread_id LIKE ?", like) for table in checkpoints_of(agent).tables}


@pytest.mark.on_every_database
async def test_thread_keeps_as_many_checkpoints_as_set(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", checkpoint_keep=5) as agent:
        thread = agent.thread("t1")
        sizes: list[dict[str, int]] = []
        for number in range(8):
            await thread.converse(f"number {number}")
            sizes.append(await kept(agent))
        assert sizes[-1] == sizes[-2] == sizes[-3], "it still grows"
        assert sizes[-1]["checkpoints"] == 5
        assert len(await thread.history()) == 16
    async with opened(tmp_path / "home", checkpoint_keep=1) as agent:
        await agent.thread("t1").converse("again")
        assert (await kept(agent))["checkpoints"] == 1
        assert len(await agent.thread("t1").history()) == 18


@pytest.mark.on_every_database
@pytest.mark.requirement("T5")
async def test_a_turn_that_waits_keeps_all_that_it_may_need(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", checkpoint_keep=0) as agent:
        thread = agent.thread("t1")
        for _ in range(3):
            await thread.converse("say")
        turn = await thread.task("ask", {})
        before = await kept(agent)
        await agent.thread("t2").converse("say")
        pruned = await agent.upkeep.prune(keep=1)
        assert (pruned.threads, pruned.checkpoints, pruned.left) == (1, 1, 1)
        assert await kept(agent, "novel/t1") == before
    async with opened(tmp_path / "home", checkpoint_keep=1) as agent:
        thread = agent.thread("t1")
        assert await kept(agent, "novel/t1") == before
        turn = await thread.resume({turn.pauses[0].id: "red"})
        assert (turn.status, turn.text) == ("done", '{"text":"red"}')
        assert (await kept(agent, "novel/t1"))["checkpoints"] == 1


@pytest.mark.on_every_database
async def test_checkpoints_go_by_age_but_the_newest_stays(tmp_path: Path) -> None:
    clock = VirtualClock(datetime.now(UTC))
    async with opened(tmp_path / "home", clock, checkpoint_keep=0) as agent:
        await agent.thread("t1").converse("say")
        await agent.thread("t2").converse("say")
        assert (await agent.upkeep.prune(age=3600)).checkpoints == 0
        await clock.advance(3700)
        pruned = await agent.upkeep.prune(age=3600)
        assert (pruned.threads, pruned.checkpoints, pruned.left) == (2, 2, 0)
        assert (await kept(agent))["checkpoints"] == 2
        assert (await agent.upkeep.prune(age=3600)).checkpoints == 0
    async with opened(tmp_path / "home", clock, checkpoint_keep=0, checkpoint_age=3600) as agent:
        await agent.thread("t1").converse("say")
        assert (await kept(agent, "novel/t1"))["checkpoints"] == 1
        assert len(await agent.thread("t1").history()) == 4


# --- what was used ----------------------------------------------------------------------------------------------------


async def used(agent: WorldAgent) -> list[str]:
    """The day of each row of what was used."""
    return [day for (day,) in await selected(agent, "SELECT day FROM wa_usage ORDER BY day")]


@pytest.mark.on_every_database
@pytest.mark.requirement("H4")
async def test_what_was_used_on_days_that_are_over_goes_so_that_its_table_stays_flat(tmp_path: Path) -> None:
    clock, accounts = VirtualClock(), ("ada", "bob", "eve")
    sizes: list[int] = []
    async with opened(tmp_path / "home", clock) as agent:
        for _ in range(8):
            for account in accounts:
                await agent.thread(account, account=account).converse("Hello")
            rows = await used(agent)
            sizes.append(len(rows))
            assert max(rows) == clock.now().date().isoformat()
            assert (await agent.usage(account="ada")).tokens > 0
            await clock.advance(86_400)
        assert (await agent.usage()).tokens == 0
    a_day = len(accounts) + 1  # and the workspace
    assert sizes == [a_day, *[2 * a_day] * 7], "the day before stays, for a process whose clock is slow"


@pytest.mark.on_every_database
@pytest.mark.requirement("T10")
async def test_recorded_events_go_with_checkpoints_but_those_of_the_newest_turns_stay(tmp_path: Path) -> None:
    clock = VirtualClock(datetime.now(UTC))
    async with opened(tmp_path / "home", clock, checkpoint_keep=0) as agent:
        thread = agent.thread("t1")
        turns = [await thread.converse(f"number {number}", key=f"k{number}") for number in range(3)]

        async def gone() -> list[bool]:
            return [bool([1 for event in await listed(agent, turn.id) if event == "gone"]) for turn in turns]

        assert await gone() == [False, False, False]
        await agent.upkeep.prune(keep=2)
        assert await gone() == [True, False, False]
        assert (await thread.converse("number 0", key="k0")).id == turns[0].id, "its key is kept"
        await clock.advance(3600)
        await agent.upkeep.prune(age=3600)
        assert await gone() == [True, False, False]
        await agent.upkeep.prune(age=3599)
        assert await gone() == [True, True, True]
        assert await rows(agent, "wa_event", "1=1") == 0


async def listed(agent: WorldAgent, turn: str) -> list[str]:
    """The kinds of events of a turn, or that they are gone."""
    try:
        return [event.type async for event in agent.events(turn)]
    except EventsGone:
        return ["gone"]


@pytest.mark.on_every_database
@pytest.mark.requirement("T4")
async def test_locks_of_threads_that_never_began_go(tmp_path: Path) -> None:
    clock, limits = VirtualClock(datetime.now(UTC)), {"threads": 2}
    async with opened(tmp_path / "home", clock, account_limits=limits) as agent:
        await agent.thread("t0", account="ana").converse("say")
        fork = await agent.thread("t0", account="ana").fork(to="copy")
        for number in range(1, 4):
            with pytest.raises(LimitReached):
                await agent.thread(f"t{number}", account="ana").converse("say")
        await agent.upkeep.prune()
        keys = [key for (key,) in await selected(agent, "SELECT key FROM wa_epoch WHERE key <> '' ORDER BY key")]
        assert keys == ["novel/t0"]
        assert len([*(tmp_path / "home").rglob("*.lock")]) <= 2, "of the thread and of its fork"
        for thread in (agent.thread("t1", account="ana"), agent.thread("t0", account="ana"), fork):
            await clock.advance(86_400)
            assert (await thread.converse("again")).status == "done"
