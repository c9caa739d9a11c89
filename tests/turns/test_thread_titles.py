"""`thread.rename`, and the filters and pages of `agent.threads()`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, answering
from support.homes import change, rows
from worldagent import Settings, Storage, WorldAgent
from worldagent.core.errors import ExportInvalid, InvalidArgument
from worldagent.graphs import Shape, TaskContext
from worldagent.testing import VirtualClock

pytestmark = [pytest.mark.on_every_database, pytest.mark.usefixtures("database_engine")]


async def _say(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text="a green heron")


def talking(home: Path, **more: Any) -> WorldAgent:
    settings = Settings(model_attempts=1, model_backoff=0)
    return WorldAgent(
        "novel",
        lm=answering("As you say."),
        storage=settings.storage(Storage(home=home)),  # on the engine of the test
        settings=settings,
        shapes=[Shape("say", Nothing, Said, _say)],
        **more,
    )


async def listed(agent: WorldAgent, **given: Any) -> list[str]:
    return [state.thread for state in await agent.threads(**given)]


async def titles(agent: WorldAgent) -> dict[str, str | None]:
    return {state.thread: state.title for state in await agent.threads()}


# --- titles -----------------------------------------------------------------------------------------------------------


async def test_title_is_the_whole_first_words_of_the_first_message(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("short").converse("Who  rules\n\tVell?")
        await agent.thread("short").converse("And the Sarn?")
        await agent.thread("sixty").converse(f"{'a' * 30} {'b' * 29}")
        await agent.thread("long").converse(f"{'a' * 30} {'b' * 28} ccc")
        await agent.thread("one word").converse("d" * 61)
        await agent.thread("odd").converse("\x1b[31mRed\u202e text")
        await agent.thread("task").task("say", {})
        assert await titles(agent) == {
            "short": "Who rules Vell?",
            "sixty": f"{'a' * 30} {'b' * 29}",
            "long": f"{'a' * 30} {'b' * 28}…",
            "one word": f"{'d' * 59}…",
            "odd": "[31mRed text",
            "task": None,
        }


async def test_rename_sets_the_title_and_none_gives_the_first_words_back(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        thread = agent.thread("t1")
        await thread.converse("Who rules Vell?")
        assert await thread.rename("Vell's rulers") == "Vell's rulers"
        assert await thread.rename("Rulers") == "Rulers"
    async with talking(tmp_path) as agent:
        assert await titles(agent) == {"t1": "Rulers"}
        assert await agent.thread("t1").rename(None) == "Who rules Vell?"
        assert await titles(agent) == {"t1": "Who rules Vell?"}


async def test_what_cannot_be_a_title_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("t1").converse("Hello")
        for title in ("  ", "x" * 121, "two\nlines", "half \ud800", 5):
            with pytest.raises(InvalidArgument, match="`title` must be") as refused:
                await agent.thread("t1").rename(title)  # type: ignore[arg-type]  # one of them is no text
            assert "1 to 120 printable characters" in refused.value.problem
        assert await agent.thread("t1").rename("x" * 120) == "x" * 120
        with pytest.raises(InvalidArgument, match="thread 'nobody' does not exist yet"):
            await agent.thread("nobody").rename("Somebody")


async def test_fork_begins_with_the_title_that_its_origin_was_given(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        thread = agent.thread("t1")
        await thread.converse("Who rules Vell?")
        await thread.rename("Rulers")
        fork = await thread.fork(to="t2")
        await thread.rename("Other rulers")
        assert await titles(agent) == {"t1": "Other rulers", "t2": "Rulers"}
        assert await fork.state() in await agent.threads()
        await fork.rename("What if")
        assert await titles(agent) == {"t1": "Other rulers", "t2": "What if"}


async def test_edit_of_the_first_message_changes_the_derived_title_alone(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("t1").converse("Who rules Vell?")
        await agent.thread("t1").edit("Who rules Sarn?", keep_as="old")
        assert await titles(agent) == {"t1": "Who rules Sarn?", "old": "Who rules Vell?"}
        await agent.thread("t1").rename("Rulers")
        await agent.thread("t1").edit("Who rules Tarn?", keep_as="older")
        assert await titles(agent) == {"t1": "Rulers", "old": "Who rules Vell?", "older": "Rulers"}


async def test_export_takes_a_given_title_along(tmp_path: Path) -> None:
    async with talking(tmp_path / "home") as agent:
        await agent.thread("t1").converse("Who rules Vell?")
        await agent.upkeep.export("t1", tmp_path / "plain.jsonl")
        assert '"title"' not in (tmp_path / "plain.jsonl").read_text()
        await agent.thread("t1").rename("Rulers")
        await agent.upkeep.export("t1", tmp_path / "named.jsonl")
        await agent.upkeep.remove("t1")
        assert await rows(agent, "wa_title") == 0
        await agent.upkeep.import_thread(tmp_path / "plain.jsonl", to="plain")
        await agent.upkeep.import_thread(tmp_path / "named.jsonl", to="named")
        assert await titles(agent) == {"plain": "Who rules Vell?", "named": "Rulers"}
        bad = (tmp_path / "named.jsonl").read_text().replace('"title": "Rulers"', f'"title": "{"x" * 121}"')
        (tmp_path / "bad.jsonl").write_text(bad)
        with pytest.raises(ExportInvalid, match="title"):
            await agent.upkeep.import_thread(tmp_path / "bad.jsonl", to="bad")


# --- filters ----------------------------------------------------------------------------------------------------------


async def test_threads_of_an_account_are_those_on_which_it_had_a_turn(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("hers", account="ana").converse("Hello")
        await agent.thread("his", account="bob").converse("Hello")
        await agent.thread("both", account="ana").converse("Hello")
        await agent.thread("both", account="bob").converse("Hello")
        await agent.thread("nobody's").converse("Hello")
        assert await listed(agent, account="ana") == ["both", "hers"]
        assert await listed(agent, account="bob") == ["both", "his"]
        assert await listed(agent, account="an") == []
        assert await listed(agent, account="ana", limit=1) == ["both"]


async def test_branch_without_a_turn_is_of_the_accounts_that_wrote_its_messages(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("hers", account="ana").converse("Hello")
        await agent.thread("his", account="bob").converse("Hello")
        await agent.thread("hers", account="bob").fork(to="hers 2")
        await agent.thread("his").fork(to="his 2")
        assert await listed(agent, account="ana") == ["hers 2", "hers"]
        assert await listed(agent, account="ana", status="forked") == ["hers 2"]


async def test_threads_of_a_channel_are_those_whose_newest_turn_is_of_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("one", channel="c1").converse("Hello")
        await agent.thread("moved", channel="c1").converse("Hello")
        await agent.thread("moved", channel="c2").converse("Hello")
        await agent.thread("none").converse("Hello")
        await agent.thread("one", channel="c1").fork(to="fork")
        assert await listed(agent, channel="c1") == ["one"]
        assert await listed(agent, channel="c2") == ["moved"]
        assert await listed(agent, channel="c2", account="ana") == []


async def test_query_finds_messages_and_answers_whatever_the_case(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("river").converse("Where is the Sarn?")
        await agent.thread("river").converse('Is ÄRGER a word in 100% of "Länder\\Orte"? _yes_!')
        await agent.thread("town").converse("Where is Vell?")
        for query in ("SARN", "ärger", "100%", '"länder', "Länder\\orte", "_YES_!", "word in"):
            assert await listed(agent, query=query) == ["river"], query
        assert await listed(agent, query="as YOU say") == ["town", "river"]
        await agent.thread("town").rename("Dragons")
        assert await listed(agent, query="dragons") == ["town"]
        for query in ("100_", "sa%n", "Sarn? Is", "unknown"):
            assert await listed(agent, query=query) == [], query


async def test_query_finds_what_a_task_gave_and_not_how_it_is_stored(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("t1").task("say", {})
        assert await listed(agent, query="green HERON") == ["t1"]
        for name in ("text", "shape", "status", "done", "result"):
            assert await listed(agent, query=name) == [], name


async def test_query_looks_through_the_past_that_a_fork_shares_and_no_further(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        thread = agent.thread("t1")
        await thread.converse("Where is the Sarn?")
        fork = await thread.fork(to="t2")
        await thread.converse("Where is Vell?")
        assert await listed(agent, query="sarn") == ["t1", "t2"]
        assert await listed(agent, query="vell") == ["t1"]
        await fork.converse("Where is Tarn?")
        assert await listed(agent, query="tarn") == ["t2"]
        assert await listed(agent, query="sarn") == ["t2", "t1"]


async def test_query_does_not_find_what_an_edit_left_behind(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("t1").converse("Hello")
        await agent.thread("t1").converse("Where is the Sarn?")
        await agent.thread("t1").edit("Where is Vell?", keep_as="old")
        assert await listed(agent, query="sarn") == ["old"]
        assert await listed(agent, query="vell") == ["t1"]


async def test_filters_reach_beyond_the_threads_that_are_read_at_once(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("needle", account="ana").converse("Where is the Sarn?")
        first = agent.thread("t0")
        await first.converse("Hello")
        for number in range(1, 120):
            await first.fork(to=f"t{number}")
        assert await listed(agent, query="sarn") == ["needle"]
        assert await listed(agent, account="ana") == ["needle"]
        assert len(await listed(agent, query="hello", limit=110)) == 110


# --- pages ------------------------------------------------------------------------------------------------------------


async def test_pages_give_each_thread_once_and_the_newest_first(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        for number in range(4):
            await agent.thread(f"t{number}").converse("Hello")
            await agent.thread(f"t{number}").fork(to=f"f{number}")
        whole = await agent.threads()
        assert [state.thread for state in whole] == ["f3", "t3", "f2", "t2", "f1", "t1", "f0", "t0"]
        for size in (1, 3):
            found = list(await agent.threads(limit=size))
            while page := await agent.threads(limit=size, before=found[-1].page_key):
                found += page
            assert tuple(found) == whole


async def test_threads_of_one_moment_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    async with talking(tmp_path, clock=VirtualClock()) as agent:
        for number in range(3):
            await agent.thread(f"t{number}").converse("Hello")
            await agent.thread(f"t{number}").fork(to=f"f{number}")
        whole = await agent.threads()
        assert len({state.since for state in whole}) == 1
        found = list(await agent.threads(limit=1))
        while page := await agent.threads(limit=1, before=found[-1].page_key):
            found += page
        assert tuple(found) == whole
        assert len(found) == 6


async def test_time_lists_the_threads_whose_newest_turn_began_before_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with talking(tmp_path, clock=clock) as agent:
        await agent.thread("early").converse("Hello")
        await agent.thread("early").fork(to="fork")
        await clock.advance(60)
        await agent.thread("late").converse("Hello")
        assert await listed(agent, before=clock.now()) == ["early", "fork"]
        assert await listed(agent, before=clock.now() + timedelta(microseconds=1)) == ["late", "early", "fork"]
        assert await listed(agent, before=datetime(1990, 1, 1, tzinfo=UTC)) == []


async def test_what_is_no_filter_or_page_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        for before in ("t1", "2026-11-24T10:00:00Z/", datetime(2026, 1, 1), 5):
            with pytest.raises(InvalidArgument, match="must be a page key or a time") as refused:
                await agent.threads(before=before)  # type: ignore[arg-type]  # one of them is a number
            assert "page_key" in refused.value.remedy
        for query in (" ", "x" * 201, "nul \0", 5):
            with pytest.raises(InvalidArgument, match="`query` must be"):
                await agent.threads(query=query)  # type: ignore[arg-type]  # one of them is a number
        for name in ("account", "channel"):
            given: dict[str, Any] = {name: ""}
            with pytest.raises(InvalidArgument, match=f"{name} '' is not an id"):
                await agent.threads(**given)


async def test_damaged_message_leaves_its_thread_listed_without_a_title(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent:
        await agent.thread("t1").converse("Hello")
        await agent.thread("t2").converse("Hello")
        await change(agent, "UPDATE wa_message SET body='[' WHERE thread=? AND depth=0", ("novel/t1",))
        assert await titles(agent) == {"t2": "Hello", "t1": None}
        assert await listed(agent, query="hello") == ["t2"]


async def test_threads_can_be_renamed_while_a_turn_runs_and_others_rename(tmp_path: Path) -> None:
    async with talking(tmp_path) as agent, talking(tmp_path) as other:
        await agent.thread("t1").converse("Hello")
        names = [f"Name {number}" for number in range(10)]
        renames = [(agent, other)[place % 2].thread("t1").rename(name) for place, name in enumerate(names)]
        await asyncio.gather(agent.thread("t1").converse("Again"), *renames)
        [state] = await agent.threads()
        assert state.title in names
