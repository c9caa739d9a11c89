"""`agent.threads()` with its filters and pages, what it says of each thread, and `thread.rename` (T4)."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import Gate, Muse, Nothing, Said, answering, scripted_agent
from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import ThreadState
from worldagent.core.errors import InvalidArgument, TaskFailed
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import VirtualClock


async def pay(what: str) -> str:
    """Pay for something."""
    return f"paid for {what}"


async def _ask_two(params: Nothing, ctx: TaskContext) -> Said:
    colour, paid = await asyncio.gather(ctx.calls.ask_person("Which?", ["red", "blue"]), ctx.call("pay", {"what": "x"}))
    return Said(text=f"{colour}, {paid}")


async def _fail(params: Nothing, ctx: TaskContext) -> Said:
    raise ValueError("no")


@asynccontextmanager
async def shop(home: Path, gate: Gate | None = None, **more: Any) -> AsyncGenerator[WorldAgent]:
    shapes: list[Shape[Any, Any]] = [
        Shape("ask", Nothing, Said, _ask_two, entry=Muse),
        Shape("fail", Nothing, Said, _fail),
        Shape("wait", Nothing, Said, (gate or Gate()).run),
    ]
    async with scripted_agent(home, answering(), tools=[tool(approval=True)(pay)], shapes=shapes, **more) as agent:
        yield agent


def shown(states: tuple[ThreadState, ...]) -> list[tuple[str, str, int]]:
    return [(state.thread, state.status, state.pauses) for state in states]


@pytest.mark.on_every_database
@pytest.mark.requirement("T4")
async def test_each_thread_is_listed_with_its_newest_turn_and_what_it_waits_for(tmp_path: Path) -> None:
    gate = Gate()
    async with shop(tmp_path, gate) as agent:
        await agent.thread("talk", account="ana", channel="c1").converse("Hello")
        await agent.thread("order", account="bob").converse("Hello")
        paused = await agent.thread("order", account="ana").task("ask", {})
        with pytest.raises(TaskFailed):
            await agent.thread("broken").task("fail", {})
        await agent.thread("dropped").task("ask", {})
        assert await agent.thread("dropped").cancel()
        running = asyncio.create_task(agent.thread("busy").task("wait", {}))
        await gate.begun.wait()
        found = await agent.threads()
        gate.open.set()
        await running
        assert shown(found) == [
            ("busy", "running", 0),
            ("dropped", "cancelled", 0),
            ("broken", "failed", 0),
            ("order", "paused", 2),
            ("talk", "done", 0),
        ]
        order, talk = found[3:]
        assert order == ThreadState(
            thread="order",
            title="Hello",
            account="ana",
            turn_id=paused.id,
            kind="task",
            status="paused",
            since=order.since,
            pauses=2,
            page_key=order.page_key,
        )
        assert (talk.account, talk.channel, talk.kind) == ("ana", "c1", "message")
        assert [state.thread for state in found if state.resumable] == ["broken", "order"]
        assert shown(await agent.threads(limit=2)) == [("busy", "done", 0), ("dropped", "cancelled", 0)]
        assert shown(await agent.threads(status="paused")) == [("order", "paused", 2)]
        assert await agent.threads(status="running") == ()


@pytest.mark.requirement("T5")
async def test_stopped_and_interrupted_turns_have_different_states(tmp_path: Path) -> None:
    gate = Gate()
    async with shop(tmp_path, gate) as agent:
        stopping = asyncio.create_task(agent.thread("stopped").task("wait", {}))
        await gate.begun.wait()
        await agent.drain(seconds=0)
        assert (await stopping).status == "stopped"
    async with shop(tmp_path) as agent:
        await agent.thread("gone").task("ask", {})
        # What a killed process leaves: a turn that runs, and nobody who owns its thread.
        with closing(sqlite3.connect(agent.storage.database)) as connection, connection:
            connection.execute("UPDATE wa_turn SET status='running' WHERE name='gone'")
        both = [("gone", "cut_off", 2), ("stopped", "stopped", 0)]
        assert shown(await agent.threads()) == both
        assert shown(await agent.threads(status="cut_off")) == both[:1]
        assert await agent.threads(status="running") == ()
        assert all(state.resumable for state in await agent.threads())


@pytest.mark.on_every_database
@pytest.mark.requirement("T1")
async def test_a_workspace_does_not_see_anothers_threads_however_it_is_called(tmp_path: Path) -> None:
    async with shop(tmp_path) as agent:
        await agent.thread("t1").converse("Hello")
        for workspace in ("novel/x", "Novel", "%"):
            other = WorldAgent(
                workspace, lm=answering("Other."), storage=Storage(home=tmp_path), settings=Settings(model_attempts=1)
            )
            async with other:
                assert await other.threads() == ()
                await other.thread("t/2").converse("Hello")
                assert shown(await other.threads()) == [("t/2", "done", 0)]
        assert shown(await agent.threads()) == [("t1", "done", 0)]


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


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[WorldAgent]:
    async with talking(tmp_path) as opened:
        yield opened


async def listed(agent: WorldAgent, **given: Any) -> list[str]:
    return [state.thread for state in await agent.threads(**given)]


async def titles(agent: WorldAgent) -> dict[str, str | None]:
    return {state.thread: state.title for state in await agent.threads()}


# --- titles -----------------------------------------------------------------------------------------------------------


@pytest.mark.on_every_database
async def test_title_is_the_whole_first_words_of_the_first_message(agent: WorldAgent) -> None:
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


@pytest.mark.on_every_database
async def test_an_archived_thread_is_hidden_until_its_next_turn(agent: WorldAgent) -> None:
    async def listed(**which: Any) -> list[str]:
        return [state.thread for state in await agent.threads(**which)]

    old = agent.thread("old")
    for thread in (old, agent.thread("new")):
        await thread.converse("Who rules Vell?")
    await agent.thread("new").fork(to="fork")
    await old.archive()
    assert (await listed(), await listed(archived=True)) == (["fork", "new"], ["old"])
    assert await listed(archived=None, query="vell") == ["fork", "new", "old"]
    assert [state.archived for state in await agent.threads(archived=None)] == [False, False, True]
    await old.archive(False)
    assert "old" in await listed()
    await old.archive()
    await old.converse("Who ruled it before?")
    assert (await listed(limit=1), await listed(archived=True)) == (["old"], [])
    with pytest.raises(InvalidArgument, match="thread 'fork' has no turn yet; send a message on it first"):
        await agent.thread("fork").archive()
    for wrong in (old.archive("yes"), agent.threads(archived="yes")):  # type: ignore[arg-type]  # no bool
        with pytest.raises(InvalidArgument, match="`archived` must be a bool"):
            await wrong


async def test_what_cannot_be_a_title_is_refused_with_a_remedy(agent: WorldAgent) -> None:
    await agent.thread("t1").converse("Hello")
    for title in ("  ", "x" * 121, "two\nlines", "half \ud800", 5):
        with pytest.raises(InvalidArgument, match="`title` must be") as refused:
            await agent.thread("t1").rename(title)  # type: ignore[arg-type]  # one of them is not a text
        assert "1 to 120 printable characters" in refused.value.problem
    assert await agent.thread("t1").rename("x" * 120) == "x" * 120
    with pytest.raises(InvalidArgument, match="thread 'nobody' does not exist yet"):
        await agent.thread("nobody").rename("Somebody")


@pytest.mark.on_every_database
async def test_fork_begins_with_the_title_that_its_origin_was_given(agent: WorldAgent) -> None:
    thread = agent.thread("t1")
    await thread.converse("Who rules Vell?")
    await thread.rename("Rulers")
    fork = await thread.fork(to="t2")
    await thread.rename("Other rulers")
    assert await titles(agent) == {"t1": "Other rulers", "t2": "Rulers"}
    assert await fork.state() in await agent.threads()
    await fork.rename("What if")
    assert await titles(agent) == {"t1": "Other rulers", "t2": "What if"}


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.on_every_database
async def test_threads_of_an_account_are_those_on_which_it_had_a_turn(agent: WorldAgent) -> None:
    await agent.thread("hers", account="ana").converse("Hello")
    await agent.thread("his", account="bob").converse("Hello")
    await agent.thread("both", account="ana").converse("Hello")
    await agent.thread("both", account="bob").converse("Hello")
    await agent.thread("nobody's").converse("Hello")
    assert await listed(agent, account="ana") == ["both", "hers"]
    assert await listed(agent, account="bob") == ["both", "his"]
    assert await listed(agent, account="an") == []
    assert await listed(agent, account="ana", limit=1) == ["both"]


async def test_threads_of_a_channel_are_those_whose_newest_turn_is_of_it(agent: WorldAgent) -> None:
    await agent.thread("one", channel="c1").converse("Hello")
    await agent.thread("moved", channel="c1").converse("Hello")
    await agent.thread("moved", channel="c2").converse("Hello")
    await agent.thread("none").converse("Hello")
    await agent.thread("one", channel="c1").fork(to="fork")
    assert await listed(agent, channel="c1") == ["one"]
    assert await listed(agent, channel="c2") == ["moved"]
    assert await listed(agent, channel="c2", account="ana") == []


@pytest.mark.on_every_database
async def test_query_ignores_case(agent: WorldAgent) -> None:
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


@pytest.mark.on_every_database
async def test_query_looks_through_the_past_that_a_fork_shares_and_no_further(agent: WorldAgent) -> None:
    thread = agent.thread("t1")
    await thread.converse("Where is the Sarn?")
    fork = await thread.fork(to="t2")
    await thread.converse("Where is Vell?")
    assert await listed(agent, query="sarn") == ["t1", "t2"]
    assert await listed(agent, query="vell") == ["t1"]
    await fork.converse("Where is Tarn?")
    assert await listed(agent, query="tarn") == ["t2"]
    assert await listed(agent, query="sarn") == ["t2", "t1"]


async def test_filters_reach_beyond_the_threads_that_are_read_at_once(agent: WorldAgent) -> None:
    await agent.thread("needle", account="ana").converse("Where is the Sarn?")
    first = agent.thread("t0")
    await first.converse("Hello")
    for number in range(1, 120):
        await first.fork(to=f"t{number}")
    assert await listed(agent, query="sarn") == ["needle"]
    assert await listed(agent, account="ana") == ["needle"]
    assert len(await listed(agent, query="hello", limit=110)) == 110


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.on_every_database
@pytest.mark.parametrize("at_once", [True, False])
async def test_pages_give_each_thread_once(tmp_path: Path, at_once: bool) -> None:
    """The newest first; those of one moment by their ids."""
    async with talking(tmp_path, clock=VirtualClock() if at_once else None) as agent:
        for number in range(4):
            await agent.thread(f"t{number}").converse("Hello")
            await agent.thread(f"t{number}").fork(to=f"f{number}")
        whole = await agent.threads()
        assert len({state.since for state in whole}) == (1 if at_once else 8)
        for size in (1, 3):
            found = list(await agent.threads(limit=size))
            while page := await agent.threads(limit=size, before=found[-1].page_key):
                found += page
            assert (tuple(found), len(found)) == (whole, 8)
        if not at_once:
            assert [state.thread for state in whole] == ["f3", "t3", "f2", "t2", "f1", "t1", "f0", "t0"]
            assert await agent.threads(before=datetime.now(UTC) + timedelta(seconds=1)) == whole
            assert await agent.threads(before=datetime(1990, 1, 1, tzinfo=UTC)) == ()


async def test_invalid_filter_or_page_is_refused(agent: WorldAgent) -> None:
    for limit in (1001, True):
        with pytest.raises(InvalidArgument, match="limit"):
            await agent.threads(limit=limit)
    with pytest.raises(InvalidArgument, match="'waiting' is unknown") as unknown:
        await agent.threads(status="waiting")  # type: ignore[arg-type]  # there is none
    assert "cut_off" in unknown.value.remedy
    assert await agent.threads(limit=1000) == ()
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
