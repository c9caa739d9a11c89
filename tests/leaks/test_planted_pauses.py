"""The suite of turns that pause can fail: a text is put wherever a pause could keep it, and is found there."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, answering, scripted_agent
from support.leaks import Plants, Watch, awkward_canary, watch
from worldagent import WorldAgent
from worldagent.core.pauses import Answer, Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool

plants = Plants()


def asking(home: Path, handler: Callable[[TaskContext], Awaitable[str]]) -> WorldAgent:
    """An agent whose shape `job` is this handler, with a function that requires approval and one that does not."""

    async def echo(what: str) -> str:
        return what

    async def handle(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await handler(ctx))

    functions = [tool(approval=True, name="pay")(echo), tool(echo)]
    return scripted_agent(home, answering(), tools=functions, shapes=[Shape("job", Nothing, Said, handle)])


async def pause_in(seen: Watch, handler: Callable[[TaskContext], Awaitable[str]], answer: Any = None) -> None:
    """Run a turn until it pauses, and on from there where there is an answer."""
    async with asking(seen.home, handler) as agent:
        thread = agent.thread("t")
        turn = await seen.outcome(thread.task("job", {}))
        assert turn.status == "paused"
        if answer is not None:
            await seen.outcome(thread.resume({turn.pauses[0].id: answer}))


@plants("role as argument of a call that waits for approval", "wa_call.input")
async def in_argument(seen: Watch, text: str) -> None:
    await pause_in(seen, lambda ctx: ctx.call("pay", {"what": text}))


@plants("role as argument that a pause shows", "['kept']")
async def in_pause(seen: Watch, text: str) -> None:
    await in_argument(seen, text)


@plants("role as argument in the event of a pause", "['events']")
async def in_event(seen: Watch, text: str) -> None:
    await in_argument(seen, text)


@plants("role in a question", "wa_call.ask")
async def in_question(seen: Watch, text: str) -> None:
    await pause_in(seen, lambda ctx: ctx.calls.ask_person(f"May I act as this: {text}"))


@plants("role in a person's answer", "wa_call.decision")
async def in_answer(seen: Watch, text: str) -> None:
    await pause_in(seen, lambda ctx: ctx.calls.ask_person("As what?"), Answer(text))


@plants("role in the recorded result of a call", "wa_call.result")
async def in_result(seen: Watch, text: str) -> None:
    async def handle(ctx: TaskContext) -> str:
        await ctx.call("echo", {"what": text})
        return str(await ctx.call("pay", {"what": "a hat"}))

    await pause_in(seen, handle, Approve())


@plants("role in what a turn keeps of its role", "wa_turn.role")
async def in_note(seen: Watch, text: str) -> None:
    await pause_in(seen, lambda ctx: ctx.call("pay", {"what": "a hat"}))
    with closing(sqlite3.connect(seen.home / "agent.db")) as database, database:
        database.execute("UPDATE wa_turn SET role=?", (text,))


@plants("role in a WAL", "agent.db-wal")
async def in_wal(seen: Watch, text: str) -> None:
    database = sqlite3.connect(seen.home / "agent.db")
    _OPEN.append(database)  # what closes it last takes the WAL away
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE naive(role TEXT)")
    database.execute("INSERT INTO naive VALUES(?)", (text,))
    database.commit()


@plants("role in the index of a WAL", "agent.db-shm")
async def in_index(seen: Watch, text: str) -> None:
    (seen.home / "agent.db-shm").write_bytes(bytes(32_768) + text.encode())


@plants("role in a lock file", "t.lock")
async def in_lock(seen: Watch, text: str) -> None:
    (seen.home / "locks").mkdir()
    (seen.home / "locks" / "t.lock").write_text(text)


@plants("role in the file of the key", "role.key")
async def in_key(seen: Watch, text: str) -> None:
    (seen.home / "role.key").write_text(text)


@plants("role in a core", "core.4711")
async def in_core(seen: Watch, text: str) -> None:
    (seen.home / "core.4711").write_bytes(bytes(5_000_001) + text.encode() + bytes(100))


_OPEN: list[sqlite3.Connection] = []


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("length", [12, 400])
@pytest.mark.parametrize("name", plants)
async def test_a_role_where_a_pause_could_keep_it_is_found(tmp_path: Path, name: str, length: int) -> None:
    plant, place = plants[name]
    text = awkward_canary(length, seed=f"planted as {name}")
    with watch(tmp_path / "home") as seen:
        assert seen.leaks("nowhere at all", names=[text]) == []
        try:
            await plant(seen, text)
            found = seen.leaks("nowhere at all", names=[text])
            on_disk = seen.leaks_on_disk(text)
        finally:
            while _OPEN:
                _OPEN.pop().close()
    assert [finding for finding in found if place in finding], found
    assert place.startswith("[") or [finding for finding in on_disk if place in finding], on_disk
