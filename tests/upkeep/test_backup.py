"""A copy of a home that is made while turns run: whole, of one moment, and a home itself; stopped, nothing."""

import asyncio
import json
import os
import signal
import sqlite3
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent, shape, which
from support.command_line import BOUND, started
from support.postgres import new_database
from support.processes import eventually
from support.submissions import HELLO, queued_agent, working
from worldagent import Role, Storage, WorldAgent
from worldagent.agent.upkeep import Backup, back_up
from worldagent.core.errors import InvalidArgument, StorageInvalid, StorageUnavailable
from worldagent.testing import ScriptedLM


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[WorldAgent]:
    async with scripted_agent(home, answering(), shapes=[shape(which, "ask")]) as agent:
        yield agent


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("T5")
async def test_paused_turn_resumes_on_a_copy(tmp_path: Path) -> None:
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
        with pytest.raises(InvalidArgument, match="must not contain a NUL character"):
            await agent.upkeep.back_up(tmp_path / "a\0b")
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
    with pytest.raises((StorageInvalid, StorageUnavailable), match=r"sound|damaged"):
        await back_up(Storage(home=tmp_path / "home"), tmp_path / "copy", roles=True, home_only=False)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with pytest.raises(InvalidArgument, match="there is no home"):
        await back_up(Storage(home=tmp_path / "none"), tmp_path / "copy", roles=True, home_only=False)


async def test_file_that_this_user_cannot_read_is_named(tmp_path: Path) -> None:
    await talked(tmp_path / "home")
    key = tmp_path / "home" / "role.key"
    key.unlink()
    key.symlink_to("/proc/sys/vm/drop_caches")  # no user can read it, not even root
    with pytest.raises(StorageUnavailable, match=r"'.*role\.key' cannot be read .*; make it readable for this user"):
        await copied(tmp_path / "home", tmp_path / "copy")


async def test_damage_that_shows_in_the_copy_alone_gives_no_copy(tmp_path: Path) -> None:
    await talked(tmp_path / "home")
    with (tmp_path / "home" / "agent.db").open("r+b") as file:
        file.seek(36)
        file.write((7).to_bytes(4, "big"))  # how many pages are free; a reader of rows does not need it
    with pytest.raises(StorageUnavailable, match=r"the copy of '.*agent\.db' is damaged; check both disks"):
        await copied(tmp_path / "home", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_a_database_on_a_server_is_left_to_its_own_tools(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "role.key").write_text("key")
    storage = Storage(home=tmp_path / "home", url=new_database())
    with pytest.raises(InvalidArgument, match=r"is on a Postgres server and is not part of this backup; .* pg_dump"):
        await back_up(storage, tmp_path / "copy", roles=True, home_only=False)
    assert (await back_up(storage, tmp_path / "copy", roles=True, home_only=True)).files == ("role.key",)


async def talked(home: Path) -> None:
    async with scripted_agent(home, answering()) as agent:
        await agent.thread("t").converse("Hi", role=Role("keeper", "Be brief."), attachments=[b"a,b\n1,2\n"])


async def copied(home: Path, folder: Path) -> Backup:
    return await back_up(Storage(home=home), folder, roles=True, home_only=False)


@contextmanager
def kept_busy(home: Path) -> Generator[None]:
    """Have a copy wait, once it has the conversations, until the block ends."""
    with closing(sqlite3.connect(home / "roles.db", isolation_level=None)) as roles:
        roles.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        roles.execute("BEGIN EXCLUSIVE")
        yield


def begun(folder: Path) -> list[Path]:
    """What there is of copies that are not whole."""
    return sorted(folder.glob(".*/roles.db"))


@pytest.mark.requirement("T5")
async def test_what_a_killed_copy_has_left_goes_with_the_next_one_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "copy"
    await talked(home)
    other = tmp_path / ".copy.mine"
    other.mkdir()
    with kept_busy(home):
        async with started(home, "backup", str(folder)) as process:
            assert await eventually(lambda: len(begun(tmp_path)) == 1, 60)
            with pytest.raises(
                InvalidArgument, match=r"another run makes the backup '.*copy'; wait until it has ended"
            ):
                await copied(home, folder)
            assert len(begun(tmp_path)) == 1
            process.kill()
            await process.wait()
    assert len(begun(tmp_path)) == 1
    assert "roles.db" in (await copied(home, folder)).files
    assert {path.name for path in tmp_path.iterdir()} == {"home", "copy", other.name}


@pytest.mark.requirement("T5")
async def test_stopped_copy_leaves_no_file(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "copy"
    await talked(home)
    async with started(home, "backup", str(folder), "--json") as process:
        with kept_busy(home):
            assert await eventually(lambda: len(begun(tmp_path)) == 1, 60)
            process.send_signal(signal.SIGTERM)
            assert not await eventually(lambda: process.returncode is not None, 0.5), "it has not cleaned up"
        out, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert (process.returncode, told) == (143, b"")
    assert json.loads(out)["error"]["code"] == "terminated"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_submitted_turns_that_wait_are_part_of_it(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    async with queued_agent(home, ScriptedLM([])) as agent:
        submission = await agent.submit(HELLO, thread=agent.thread("t1"))
        assert "queue.db" in (await agent.upkeep.back_up(copy)).files
    assert {(folder / "queue.db").stat().st_mode & 0o777 for folder in (home, copy)} == {0o600}
    async with working(copy, ScriptedLM([{"reply": "Hello."}])) as (agent, _):
        again = agent.submission(agent.thread("t1"), submission.key)
        assert (await asyncio.wait_for(again.wait(), 20)).text == "Hello."
