"""A start with a key: repeated, it is the same turn, whatever became of that, from whatever process it comes (T10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Thinking, answering, asking_shop, scripted_agent, taken
from support.homes import rows
from worldagent import Role, Roles, Tier
from worldagent.agent import Composed
from worldagent.core import Scope
from worldagent.core.errors import InvalidArgument, KeyReused, ModelUnavailable, OutputInvalid, RoleRequired
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T10")

LIMIT = 20


async def test_a_repeated_start_gives_the_turn_and_its_events_again(tmp_path: Path) -> None:
    lm = answering("Dull.")
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        thread = agent.thread("t", account="ana")
        first = await thread.converse("Hello", key="k1")
        task = await thread.task("subagent", {"worker": "critic", "request": "Judge."}, key="k2")
        assert await thread.converse("Hello", key="k1") == first
        assert await thread.task("subagent", {"worker": "critic", "request": "Judge."}, key="k2") == task
        async with thread.stream("Hello", key="k1") as stream:
            events = await taken(stream)
        assert events == await taken(agent.events(first.id))
        assert stream.turn == first
        assert (await agent.thread("u", account="ana").converse("Hello", key="k1")).id != first.id
        assert len(lm.calls) == 3
        assert [message.kind for message in await thread.history()] == ["message", "answer", "task", "result"]


async def test_the_same_key_for_something_else_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC]) as agent:
        thread, ask = agent.thread("t", account="ana"), {"worker": "critic", "request": "Judge."}
        await thread.converse("Hello", key="k")
        await thread.run_skill(Composed("Be brief.", params=ask, name="s"), key="s")
        await thread.run_skill(Composed("Be brief.", params=ask, name="s"), key="s", role=Role("other", "Be kind."))
        with pytest.raises(KeyReused):
            await thread.converse("Hello!", key="k")
        with pytest.raises(KeyReused):
            await thread.task("subagent", ask, key="k")
        with pytest.raises(KeyReused):
            await agent.thread("t", account="ben").converse("Hello", key="k")
        with pytest.raises(KeyReused):
            await thread.run_skill(Composed("Be long.", params=ask, name="s"), key="s")
        with pytest.raises(KeyReused):
            async with thread.stream("Bye", key="k", detach=True):
                pass
        for key in ("", "a\nb", "x" * 201, 7):
            with pytest.raises(InvalidArgument):
                await thread.converse("Hello", key=key)  # type: ignore[arg-type]  # that is what is tried


async def test_who_starts_what_runs_already_holds_the_same_turn(tmp_path: Path) -> None:
    model = Thinking("At last.")
    async with scripted_agent(tmp_path, model.lm) as agent, scripted_agent(tmp_path, answering()) as other:
        async with agent.thread("t").stream("Hello", key="k") as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            with pytest.raises(KeyReused):
                await agent.thread("t").converse("Bye", key="k")
            here = asyncio.create_task(agent.thread("t").converse("Hello", key="k"))
            there = asyncio.create_task(other.thread("t").converse("Hello", key="k"))
            async with agent.thread("t").stream("Hello", key="k") as again:
                assert again.turn_id == stream.turn_id
            model.may.set()
            events = await taken(stream)
            turns = await asyncio.wait_for(asyncio.gather(here, there), LIMIT)
        assert stream.turn.status == "done", "a second holder that leaves does not cancel it"
        assert [turn.id for turn in turns] == [stream.turn_id] * 2
        assert [turn.text for turn in turns] == ["At last."] * 2
        assert events == await taken(other.events(stream.turn_id))


@pytest.mark.on_every_database
async def test_starts_of_one_key_at_once_are_one_turn(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent, scripted_agent(tmp_path, answering()) as other:
        starts = (each.thread("t").converse("Hello", key="k") for each in (agent, other) for _ in range(3))
        assert len({turn.id for turn in await asyncio.gather(*starts)}) == 1
        assert await rows(agent, "wa_turn") == 1


async def test_the_last_holder_who_leaves_cancels_and_a_repeat_says_so(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t").stream("Hello", key="k") as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
        assert stream.turn.status == "cancelled"
        assert (await agent.thread("t").converse("Hello", key="k")).status == "cancelled"


async def test_what_failed_in_passing_goes_on_and_what_failed_for_good_does_not(tmp_path: Path) -> None:
    lm = ScriptedLM([ModelUnavailable("down", remedy="wait"), {"reply": "Up."}, "", "", ""])
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        with pytest.raises(ModelUnavailable) as failed:
            await thread.converse("Hello", key="k")
        async with thread.stream("Hello", key="k") as stream:
            events = await taken(stream)
        assert (stream.turn.id, stream.turn.text) == (failed.value.turn_id, "Up.")
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type for event in events].count("turn_started") == 2
        with pytest.raises(OutputInvalid):
            await thread.converse("Bad", key="bad")
        count = len(lm.calls)
        with pytest.raises(OutputInvalid) as again:
            await thread.converse("Bad", key="bad")
        assert again.value.turn_id is not None
        assert len(lm.calls) == count


@pytest.mark.requirement("R13")
async def test_a_role_goes_with_a_start_and_is_no_part_of_what_is_compared(tmp_path: Path) -> None:
    lm = ScriptedLM([ModelUnavailable("down", remedy="wait"), {"reply": "Up."}])
    async with scripted_agent(tmp_path, lm) as agent:
        thread, role = agent.thread("t"), Role("brief", "Answer in two words.")
        with pytest.raises(ModelUnavailable):
            await thread.converse("Hello", key="k", role=role)
        with pytest.raises(RoleRequired):
            await thread.converse("Hello", key="k")
        turn = await thread.converse("Hello", key="k", role=role)
        assert (turn.text, [str(tier.value) for tier in turn.role_tiers]) == ("Up.", ["call"])
        assert await thread.converse("Hello", key="k") == turn


def going_on(resolves: asyncio.Event, may: asyncio.Event) -> dict[str, Any]:
    """Options of an agent whose turn stands still where its answer is taken and it is about to go on."""
    roles = 0

    async def role(scope: Scope) -> Role | None:
        nonlocal roles
        roles += 1
        if roles == 3:  # the third one is asked for once the answer is taken
            resolves.set()
            await may.wait()
        return None

    return {"roles": Roles(sources={Tier.CHANNEL: role}), "settings": {"role_timeout": LIMIT}}


@pytest.mark.requirement("T4")
async def test_a_repeat_goes_on_with_a_turn_that_is_answered_and_that_nobody_went_on_with(tmp_path: Path) -> None:
    resolves = asyncio.Event()
    async with asking_shop(tmp_path, **going_on(resolves, asyncio.Event())) as agent:
        thread = agent.thread("t", channel="#shop")
        paused = await thread.task("buy", {"what": "hat"}, key="k")
        resuming = asyncio.create_task(thread.resume({paused.pauses[0].id: "red"}))
        await asyncio.wait_for(resolves.wait(), LIMIT)
        resuming.cancel()
        await asyncio.wait({resuming})
        again = await asyncio.wait_for(thread.task("buy", {"what": "hat"}, key="k"), LIMIT)
        assert (again.id, [pause.function for pause in again.pauses]) == (paused.id, ["pay"])
        assert await thread.task("buy", {"what": "hat"}, key="k") == again
