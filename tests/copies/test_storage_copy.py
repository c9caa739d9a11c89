"""Copies of all that agents keep, in every direction: what resumes there, what is refused, what a stop leaves (T5)."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.agents import CRITIC, Said, Writing, answering, scripted_agent, shape
from support.postgres import cut, new_database, table_bytes
from worldagent import Role, Storage, WorldAgent
from worldagent.agent import ThreadState
from worldagent.agent.copying import Copied, copy_storage, drop_copy
from worldagent.core.errors import (
    InvalidArgument,
    SchemaTooNew,
    StorageHalfCopied,
    StorageInvalid,
    ThreadBusy,
)
from worldagent.graphs import TaskContext
from worldagent.memory import Message
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

ROLE = Role("critic", "Be as strict as the keeper of the ninth lighthouse.")
THREADS = 5
Talks = dict[str, tuple[ThreadState, tuple[Message, ...]]]
"""Where each thread stands, and what was said on it."""


def storage(engine: str, folder: Path) -> Storage:
    return Storage(home=folder, url=new_database() if engine == "postgres" else None)


def agent_of(where: Storage) -> WorldAgent:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Weak \N{SNOWMAN} \\u0000 'quoted'."}
        if any("Weak" in str(message) for message in call.messages):
            return {"reply": "Done."}
        return {"reply": "I ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge."}}]}

    async def job(ctx: TaskContext) -> str:
        first = await ctx.call("write", {"what": "first"})
        colour = await ctx.calls.ask_person("Which colour?", ["red", "blue"])
        return f"{first} {await ctx.call('write', {'what': colour})}"

    settings = {"database_url": where.url} if where.url else {}
    settings["role_key"] = "the same key everywhere"
    return scripted_agent(
        where.resolve(),
        ScriptedLM(reply),
        workers=[CRITIC],
        tools=Writing().functions,
        shapes=[shape(job)],
        settings=settings,
    )


async def used(where: Storage) -> None:
    """Have turns of every kind there: ended, failed, and one that waits under a role."""
    async with agent_of(where) as agent:
        for number in range(THREADS):
            assert (await agent.thread(f"t{number}").converse("Is it good?")).text == "Done."
        assert (await agent.thread("t0").converse("And now?")).text == "Done."
        assert (await agent.thread("waits").task("job", {}, role=ROLE)).status == "paused"


async def said(agent: WorldAgent) -> Talks:
    states = await agent.threads()
    return {state.thread: (state, await agent.thread(state.thread).history()) for state in states}


async def all_of(where: Storage) -> Talks:
    async with agent_of(where) as agent:
        return await said(agent)


pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(300)]

WAYS = [("sqlite", "postgres"), ("postgres", "sqlite")]


@pytest.mark.requirement("R7", "R13")
@pytest.mark.parametrize(("one", "other"), WAYS)
async def test_copy_has_all_messages_and_its_paused_turns_resume(tmp_path: Path, one: str, other: str) -> None:
    source, target = storage(one, tmp_path / "one"), storage(other, tmp_path / "other")
    await used(source)
    seen: list[tuple[str, int, int]] = []
    copied = await copy_storage(source, target, progress=lambda *told: seen.append(told))
    assert (copied.source, copied.target, copied.restarted) == (str(source.place), str(target.place), False)
    assert copied.parts["wa_turn"].rows == THREADS + 2
    assert copied.parts["checkpoints"].rows > THREADS
    assert {name for name, done, total in seen if done == total} == {
        name for name, held in copied.parts.items() if held.rows
    }
    assert await all_of(target) == await all_of(source)
    held = [tmp_path, *(table_bytes(place.url) for place in (source, target) if place.url), copied, seen]
    assert_no_role_leak(held, ROLE.content)
    async with agent_of(target) as agent:
        [pause] = await agent.thread("waits").pauses()
        turn = await agent.thread("waits").resume({pause.id: "red"}, role=ROLE)
        assert (turn.status, turn.result) == ("done", Said(text="first red"))
        assert (await agent.thread("t0").converse("Once more?")).text == "Done."
        assert len(await agent.thread("t0").history()) > len((await all_of(source))["t0"][1])


def rows(where: Storage, table: str) -> list[tuple[Any, ...]]:
    columns = "*" if table != "checkpoints" else "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type"
    with closing(sqlite3.connect(where.database)) as database:
        return sorted(database.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)


class Stopped(Exception):
    """Stops a copy in the middle."""


async def stopped(source: Storage, target: Storage, at: str) -> None:
    """Copy until the first batch of a part is there."""

    def stop(part: str, done: int, total: int) -> None:
        if part == at:
            raise Stopped

    with pytest.raises(Stopped):
        await copy_storage(source, target, progress=stop)


@pytest.mark.parametrize(("one", "other", "at"), [(*WAYS[0], "wa_message"), (*WAYS[1], "checkpoints")])
async def test_interrupted_copy_is_refused_until_it_is_repeated(tmp_path: Path, one: str, other: str, at: str) -> None:
    source, target = storage(one, tmp_path / "one"), storage(other, tmp_path / "other")
    await used(source)
    await stopped(source, target, at)
    with pytest.raises(StorageHalfCopied, match=r"a copy into .* was begun and is not finished; run the same"):
        await agent_of(target).start()
    with pytest.raises(StorageHalfCopied, match="was begun and is not finished"):
        await copy_storage(target, storage("sqlite", tmp_path / "third"))
    foreign = storage("sqlite", tmp_path / "foreign")
    await used(foreign)
    with pytest.raises(InvalidArgument, match=r"holds an incomplete copy of .*; finish that copy"):
        await copy_storage(foreign, target)
    assert (await copy_storage(source, target)).restarted
    assert await all_of(target) == await all_of(source)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_removing_an_interrupted_copy_leaves_the_place_as_it_was(tmp_path: Path, engine: str) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage(engine, tmp_path / "other")
    await used(source)
    await stopped(source, target, "wa_call")
    await drop_copy(target)
    assert not target.database.exists()
    assert target.url is None or table_bytes(target.url) == {}
    for place in (target, source):
        with pytest.raises(InvalidArgument, match="does not hold an incomplete copy"):
            await drop_copy(place)
    await copy_storage(source, target)
    assert await all_of(target) == await all_of(source)


def beside(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run something to its end on a loop of its own, in the middle of a copy."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result(60)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_second_copy_into_one_target_is_refused_while_the_first_runs(tmp_path: Path, engine: str) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage(engine, tmp_path / "other")
    await used(source)
    refusals: list[str] = []

    async def intrude() -> None:
        for intruder in (copy_storage(source, target), drop_copy(target)):
            with pytest.raises(StorageHalfCopied, match="wait until it ends") as refused:
                await intruder
            refusals.append(refused.value.problem)

    def told(part: str, done: int, total: int) -> None:
        if part == "wa_message":
            beside(intrude)

    copied = await copy_storage(source, target, progress=told)
    assert (copied.restarted, refusals) == (False, [f"another copy into {str(target.place)!r} is running"] * 2)
    assert await all_of(target) == await all_of(source)
    assert not list(target.resolve().glob("*.lock"))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_copy_that_lost_its_lock_writes_nothing_after_another_copy(tmp_path: Path, engine: str) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage(engine, tmp_path / "other")
    await used(source)

    async def finish() -> None:
        for lock in target.resolve().glob("*.lock"):  # as on a file system that forgets locks
            lock.unlink()
        if target.url is not None:
            assert cut(target.url, like="%pg_try_advisory_lock%") == 1
        assert (await copy_storage(source, target)).restarted
        async with agent_of(target) as agent:
            assert await agent.upkeep.remove("t0") is not None

    def told(part: str, done: int, total: int) -> None:
        if part == "wa_epoch":
            beside(finish)
            held.append(messages(target))

    held: list[int] = []
    with pytest.raises(StorageHalfCopied, match=r"another run has taken over the copy into "):
        await copy_storage(source, target, progress=told)
    left = await all_of(source)
    del left["t0"]
    assert await all_of(target) == left
    assert held == [messages(target)]


def messages(where: Storage) -> int:
    """How many there are in the database, of whatever thread."""
    connect: Any = psycopg.connect(where.url) if where.url else sqlite3.connect(where.database)
    with closing(connect) as database:
        [(count,)] = database.execute("SELECT COUNT(*) FROM wa_message").fetchall()
    return int(count)


async def test_nothing_is_copied_while_turns_run(tmp_path: Path) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage("sqlite", tmp_path / "other")
    asked, answer = asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return {"reply": "Fine."}

    async with scripted_agent(source.resolve(), ScriptedLM(reply)) as agent:
        running = asyncio.create_task(agent.thread("t").converse("Hi"))
        await asyncio.wait_for(asked.wait(), 30)
        with pytest.raises(ThreadBusy, match=r"1 turns run in .*, one of them on 'novel/t'; wait for them to end"):
            await copy_storage(source, target)
        assert not target.database.exists()
        answer.set()
        await running
        await copy_storage(source, target)


async def test_what_agents_write_during_a_copy_is_noticed_and_the_copy_stays_closed(tmp_path: Path) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage("postgres", tmp_path / "other")
    await used(source)

    def interfere(part: str, done: int, total: int) -> None:
        if part == "checkpoints" and done == total:
            with closing(sqlite3.connect(source.database)) as database:
                database.execute("UPDATE wa_turn SET status='cancelled' WHERE status='paused'")
                database.commit()

    with pytest.raises(StorageInvalid, match=r"'wa_turn' differ: .* has 7, .* has 7"):
        await copy_storage(source, target, progress=interfere)
    with pytest.raises(StorageHalfCopied):
        await agent_of(target).start()
    assert (await copy_storage(source, target)).restarted
    assert await all_of(target) == await all_of(source)


async def refused(source: Storage, target: Storage, match: str, error: type[Exception] = InvalidArgument) -> None:
    with pytest.raises(error, match=match):
        await copy_storage(source, target)


async def test_places_that_do_not_fit_are_refused_and_left_alone(tmp_path: Path) -> None:
    source, empty = storage("sqlite", tmp_path / "one"), storage("sqlite", tmp_path / "other")
    await refused(source, empty, "there is no storage .* to copy from")
    assert not source.database.exists()
    await refused(storage("postgres", tmp_path), empty, "there is no storage 'test_")
    await used(source)
    await refused(source, Storage(home=tmp_path / "one"), "cannot be copied into itself")
    for engine in ("sqlite", "postgres"):
        target = storage(engine, tmp_path / engine)
        await used(target)
        before = await all_of(target)
        await refused(source, target, r"is in use: its table '\w+' has rows; copy into an empty database or home")
        assert await all_of(target) == before
    async with agent_of(empty):
        pass
    assert isinstance(await copy_storage(source, empty), Copied), "one that was opened and never used is empty"


async def test_a_source_of_a_newer_version_is_refused_naming_it(tmp_path: Path) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage("sqlite", tmp_path / "other")
    await used(source)
    for change, problem in (
        ("INSERT INTO wa_schema(name, version) VALUES('unheard-of', 1)", "has the part 'unheard-of', which this pack"),
        ("UPDATE wa_schema SET version=99 WHERE name='journal'", "has version 99 of 'journal', but this package knows"),
    ):
        with closing(sqlite3.connect(source.database)) as database:
            database.execute("DELETE FROM wa_schema WHERE name='unheard-of'")
            database.execute(change)
            database.commit()
        await refused(source, target, problem, SchemaTooNew)
        assert not target.database.exists()


@pytest.mark.requirement("T10")
async def test_recorded_events_and_keys_go_along(tmp_path: Path) -> None:
    source, target = storage("sqlite", tmp_path / "one"), storage("postgres", tmp_path / "other")
    async with WorldAgent("novel", lm=answering(), storage=source) as agent:
        turn = await agent.thread("t").converse("Hello", key="k")
        told = [event async for event in agent.events(turn.id)]
    await copy_storage(source, target)
    async with WorldAgent("novel", lm=answering("Another."), storage=target) as agent:
        assert [event async for event in agent.events(turn.id)] == told
        assert await agent.thread("t").converse("Hello", key="k") == turn
