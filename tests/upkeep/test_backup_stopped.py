"""A copy of a home that is stopped, killed, made twice at once or has no space: nothing of it is left in the end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.command_line import BOUND, started
from support.processes import eventually, run_script
from worldagent import Role, Storage
from worldagent.agent.upkeep import Backup, back_up
from worldagent.core.errors import InvalidArgument

pytestmark = [pytest.mark.requirement("T5"), pytest.mark.timeout(200)]

LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from worldagent import Storage
from worldagent.agent.upkeep import back_up
from worldagent.core.errors import StorageUnavailable

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    asyncio.run(back_up(Storage(home=Path(sys.argv[1])), Path(sys.argv[2]), roles=True, home_only=False))
except StorageUnavailable as error:
    print(error)
"""


ON_ANOTHER = "name a folder that does not exist yet, on a disk with space"


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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143)])
async def test_a_copy_that_is_stopped_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    home, folder = tmp_path / "home", tmp_path / "copy"
    await talked(home)
    async with started(home, "backup", str(folder), "--json") as process:
        with kept_busy(home):
            assert await eventually(lambda: len(begun(tmp_path)) == 1, 60)
            process.send_signal(number)
            assert not await eventually(lambda: process.returncode is not None, 0.5), "it has not cleaned up"
        out, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert (process.returncode, told) == (code, b"")
    assert json.loads(out)["error"]["code"] == ("terminated" if code == 143 else "interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_a_full_disk_is_told_of_the_copy_and_not_of_the_home(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "copy"
    await talked(home)
    async with scripted_agent(home, answering()):  # its files beside the database are there already
        told = await run_script(LIMITED, home, folder)
    assert told == f"the backup at {str(folder)!r} could not be made ({os.strerror(errno.ENOSPC)}); {ON_ANOTHER}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
