"""Homes that earlier versions wrote: today's code opens them and goes on with every turn that waits in them (D15)."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from support.databases import rows_of
from support.make_home import HOMES, HOUSE, fill, home_agent, restore, tables
from worldagent import Tier
from worldagent.core.errors import GraphChanged
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
@of_each_version
async def test_conversation_of_a_kept_home_that_waits_is_refused_and_loses_nothing(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        thread = agent.thread("approval")
        [pause] = await thread.pauses()
        assert (pause.kind, pause.function, pause.arguments) == ("approval", "pay", {"what": "hat"})
        before = await thread.history()
        with pytest.raises(GraphChanged, match="send the message again: that ends this turn"):
            await thread.resume({pause.id: Approve()})
        assert (await thread.history(), done) == (before, [])
        [pause] = (await thread.converse("Buy a hat")).pauses
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.status, turn.text, turn.role_tiers) == ("done", "It is bought.", (Tier.WORKSPACE,))
        assert (await thread.history())[: len(before)] == before
    assert done == ["pay hat"]


@pytest.mark.requirement("T4")
@of_each_version
async def test_a_turn_of_a_kept_home_that_waits_for_an_answer_repeats_none_of_its_calls(
    kept: str, tmp_path: Path
) -> None:
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
async def test_a_turn_of_a_kept_home_that_was_stopped_goes_on_at_its_next_step(kept: str, tmp_path: Path) -> None:
    restore(HOMES / kept, tmp_path)
    done: list[str] = []
    async with home_agent(tmp_path, done) as agent:
        turn = await agent.thread("stopped").resume()
        assert (turn.status, turn.text) == ("done", '{"text":"stops, more"}')
    assert done == ["write more"]


@of_each_version
async def test_a_conversation_of_a_kept_home_goes_on(kept: str, tmp_path: Path) -> None:
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


@of_each_version
def test_a_kept_home_is_small_and_says_nothing_of_the_machine_that_made_it(kept: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((HOMES / kept).iterdir())]
    assert sum(map(len, texts)) < 200_000
    whole = "\n".join(texts)
    plain = whole + "".join(bytes.fromhex(blob).decode("latin-1") for blob in re.findall(r"X'([0-9A-F]*)'", whole))
    for part in (str(Path.home()), str(HOMES.parents[2]), "/tmp/", "of fixtures alone"):
        assert part not in plain
