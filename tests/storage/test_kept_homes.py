"""Homes that earlier versions wrote: today's code opens them and resumes every turn that waits in them (D15)."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from support.agents import standing, streamed
from support.databases import rows_of
from support.make_home import HOMES, HOUSE, fill, home_agent, restore, tables
from worldagent import Role, Tier
from worldagent.core.errors import GraphChanged, RoleChanged, RoleKeyMismatch
from worldagent.core.pauses import Approve

KEPT = sorted(path.name for path in HOMES.iterdir())
of_each_version = pytest.mark.parametrize("kept", KEPT)


def test_a_home_of_this_version_is_kept() -> None:
    assert version("worldagent") in KEPT, "run tests/support/make_home.py"


def test_the_home_of_0_1_0_has_the_tables_of_0_1_0(tmp_path: Path) -> None:
    restore(HOMES / "0.1.0", tmp_path)
    # A home with later numbers was brought up to date by hand, and shows nothing of the migrations.
    versions = {"epochs": 1, "conversation": 6, "turns": 4, "journal": 3, "usage": 1, "events": 1}
    assert dict(rows_of(tmp_path, "SELECT name, version FROM wa_schema")) == versions


@of_each_version
async def test_a_kept_home_has_todays_tables_once_it_was_opened(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path / "old")
    async with home_agent(tmp_path / "old", []):
        pass
    await fill(tmp_path / "new")
    assert tables(tmp_path / "old") == tables(tmp_path / "new")


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("kept", [name for name in KEPT if name != "0.1.0"])
async def test_conversation_of_a_kept_home_that_waits_resumes(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        thread = agent.thread("approval")
        [pause] = await thread.pauses()
        assert (pause.kind, pause.function, pause.arguments) == ("approval", "pay", {"what": "hat"})
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.status, turn.text, turn.role_tiers) == ("done", "It is bought.", (Tier.WORKSPACE,))
    assert done == ["pay hat"]


@pytest.mark.requirement("T4")
async def test_conversation_of_0_1_0_that_waits_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    restore(HOMES / "0.1.0", tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        thread = agent.thread("approval")
        [pause] = await thread.pauses()
        assert (pause.kind, pause.function, pause.arguments) == ("approval", "pay", {"what": "hat"})
        before = await thread.history()
        with pytest.raises(GraphChanged, match="send the message again; that ends this turn"):
            await thread.resume({pause.id: Approve()})
        assert (await thread.history(), done) == (before, [])
        [pause] = (await thread.converse("Buy a hat")).pauses
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.status, turn.text, turn.role_tiers) == ("done", "It is bought.", (Tier.WORKSPACE,))
        assert (await thread.history())[: len(before)] == before
    assert done == ["pay hat"]


@pytest.mark.requirement("T4")
@of_each_version
async def test_paused_turn_of_a_kept_home_repeats_no_call(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        thread = agent.thread("question")
        [pause] = await thread.pauses()
        assert (pause.question, pause.options) == ("Which colour has the door?", ("red", "blue"))
        turn = await thread.resume({pause.id: "blue"})
        assert turn.status == "done"
        assert turn.text == '{"text":"blue; It is fine."}'
    assert done == []


@pytest.mark.requirement("T5")
@of_each_version
async def test_stopped_turn_of_a_kept_home_resumes_at_its_next_step(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        turn = await agent.thread("stopped").resume()
        assert (turn.status, turn.text) == ("done", '{"text":"stops, more"}')
    assert done == ["write more"]


@of_each_version
async def test_conversation_of_a_kept_home_continues(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    async with home_agent(tmp_path, []) as agent:
        thread = agent.thread("talk", account="ada")
        assert [(message.author, message.kind) for message in await thread.history()] == [
            ("ada", "message"),
            ("agent", "answer"),
        ] * 2
        assert (await thread.converse("Hello")).text == "You have said 3 times hello."
        assert await agent.roles.get(Tier.WORKSPACE) == HOUSE


@pytest.mark.requirement("T4")
@of_each_version
async def test_a_conversation_of_a_kept_home_is_forked_replayed_and_edited(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    async with home_agent(tmp_path, []) as agent:
        thread = agent.thread("talk", account="ada")
        past = [message.id for message in await thread.history()]
        assert (await (await thread.fork(at=past[1])).converse("Hello")).text == "You have said 2 times hello."
        assert (await thread.replay(past[2])).text == "You have said 2 times hello."
        assert (await thread.edit("Hello", at=past[0], keep_as="kept")).text == "You have said 1 times hello."
        assert [message.id for message in await agent.thread("kept").history()] == past


@pytest.mark.requirement("R13")
@of_each_version
async def test_the_role_of_a_kept_task_is_compared_as_before(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done, key="another key, of this test alone") as agent:
        [pause] = await agent.thread("leave").pauses()
        assert (pause.caller, pause.arguments) == ("buyer", {"what": "coat"})
        with pytest.raises(RoleKeyMismatch):
            await agent.thread("leave").resume({pause.id: Approve()})
    async with home_agent(tmp_path, done) as agent:
        thread = agent.thread("leave")
        await agent.roles.put(Tier.WORKSPACE, Role("house", "Answer at length."))
        with pytest.raises(RoleChanged):
            await thread.resume({pause.id: Approve()})
        assert done == []
        await agent.roles.put(Tier.WORKSPACE, HOUSE)
        turn, events = await streamed(thread.stream_resume({pause.id: Approve()}))
        assert (turn.status, turn.role_tiers) == ("done", (Tier.WORKSPACE,))
        assert [event.type for event in events].count("usage") == 1, "the step before the pause is not thought again"
    assert done == ["pay coat"]


@pytest.mark.requirement("T10")
@of_each_version
async def test_events_that_a_kept_turn_recorded_are_read_as_before(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    rows = rows_of(tmp_path, "SELECT lines FROM wa_event ORDER BY first")
    kept_events = [json.loads(line) for (lines,) in rows for line in lines.splitlines()]
    async with home_agent(tmp_path, []) as agent:
        turn = await agent.thread("told", account="ada").converse("Is it fine?", key="once")
        events = [event async for event in agent.events(turn.id)]
        later = [event async for event in agent.events(turn.id, after=5)]
    told = [event.model_dump(mode="json") for event in events]
    assert [{name: event[name] for name in was} for event, was in zip(told, kept_events, strict=True)] == kept_events
    assert (later, standing(events)) == (events[5:], turn.text)
    assert turn.text == "They say that it is fine."
