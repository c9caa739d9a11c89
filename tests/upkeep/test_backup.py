"""A copy of a home that is made while turns run: whole, of one moment, and a home itself."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.jobs import Nothing, Said
from worldagent import Role, WorldAgent
from worldagent.core.errors import InvalidArgument, StorageInvalid, StorageUnavailable
from worldagent.graphs import Shape, TaskContext


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=await ctx.calls.ask_person("Which?", ["red", "blue"]))


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[WorldAgent]:
    async with scripted_agent(home, answering(), shapes=[Shape("ask", Nothing, Said, _ask)]) as agent:
        yield agent


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("T5")
async def test_a_copy_is_a_home_on_which_what_waits_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        await thread.converse("Look", role=Role("keeper", "Be brief."), attachments=[b"a,b\n1,2\n"])
        said = await thread.history()
        turn = await thread.task("ask", {}, role=Role("keeper", "Be brief."))
        copy = await agent.upkeep.back_up(tmp_path / "copy")
        assert {*copy.files} >= {"agent.db", "role.key", "roles.db"}
        assert (copy.missing, modes(copy.folder), stat.S_IMODE(copy.folder.stat().st_mode)) == ((), {0o600}, 0o700)
        assert copy.size == sum(path.stat().st_size for path in copy.folder.rglob("*") if path.is_file())
        await agent.upkeep.remove("t1", cancel=True)
    async with opened(tmp_path / "copy") as agent:
        thread = agent.thread("t1")
        assert (await thread.history(limit=1000))[:2] == said
        [attachment] = agent.attachments.of(said[0])
        assert await agent.attachments.read(attachment) == b"a,b\n1,2\n"
        done = await thread.resume({turn.pauses[0].id: "red"}, role=Role("keeper", "Be brief."))
        assert (done.status, done.text) == ("done", '{"text":"red"}')


async def test_copies_made_while_turns_run_are_each_of_one_moment(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        stop = asyncio.Event()

        async def talk(name: str) -> int:
            count = 0
            while not stop.is_set():
                await agent.thread(name).converse(f"number {count}")
                count += 1
            return count

        async def copy() -> None:
            for number in range(5):
                await agent.upkeep.back_up(tmp_path / f"copy {number}")
            stop.set()

        *counts, _ = await asyncio.gather(talk("t1"), talk("t2"), copy())
    before = 0
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"copy {number}" / "agent.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            [(turns,)] = database.execute("SELECT COUNT(*) FROM wa_turn").fetchall()
            assert before <= turns <= sum(counts)
            before = turns
        async with opened(tmp_path / f"copy {number}") as agent:
            for name in ("t1", "t2"):
                await agent.thread(name).converse("on the copy")
                said = [item.body["text"] for item in await agent.thread(name).history(limit=1000)]
                assert said[-2:] == ["on the copy", "Fine."]
    assert before > 0


async def test_roles_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        await agent.thread("t1").converse("one")
        copy = await agent.upkeep.back_up(tmp_path / "copy", roles=False)
    assert copy.files == ("agent.db",)


async def test_what_was_in_the_place_is_never_touched(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").write_text("mine")
        (tmp_path / "empty").mkdir()
        for taken in ("file", "full", "home"):
            with pytest.raises(InvalidArgument, match="exists already"):
                await agent.upkeep.back_up(tmp_path / taken)
        with pytest.raises(StorageUnavailable, match="could not be made"):
            await agent.upkeep.back_up(tmp_path / "nowhere" / "copy")
        assert (await agent.upkeep.back_up(tmp_path / "empty")).files
        assert (tmp_path / "full" / "file").read_text() == "mine"
        assert {path.name for path in tmp_path.iterdir()} == {"home", "file", "full", "empty"}


async def test_a_damaged_database_gives_no_copy(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        for number in range(5):
            await agent.thread("t1").converse(f"number {number} " * 300)
    file = tmp_path / "home" / "agent.db"
    data = bytearray(file.read_bytes())
    data[4096 * 8 : 4096 * 24] = os.urandom(4096 * 16)
    file.write_bytes(data)
    from worldagent import Storage
    from worldagent.agent.upkeep import back_up

    with pytest.raises((StorageInvalid, StorageUnavailable), match=r"sound|damaged"):
        await back_up(Storage(home=tmp_path / "home"), tmp_path / "copy", roles=True, home_only=False)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with pytest.raises(InvalidArgument, match="there is no home"):
        await back_up(Storage(home=tmp_path / "none"), tmp_path / "copy", roles=True, home_only=False)


async def test_a_database_on_a_server_is_left_to_its_own_tools(tmp_path: Path) -> None:
    from support.postgres import new_database
    from worldagent import Storage
    from worldagent.agent.upkeep import back_up

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "role.key").write_text("key")
    storage = Storage(home=tmp_path / "home", url=new_database())
    with pytest.raises(InvalidArgument, match=r"is on a Postgres server and is not part of this backup; .* pg_dump"):
        await back_up(storage, tmp_path / "copy", roles=True, home_only=False)
    assert (await back_up(storage, tmp_path / "copy", roles=True, home_only=True)).files == ("role.key",)
