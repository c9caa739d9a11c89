"""Two processes on one SQLite file, both busy: nothing is lost or mixed up, and neither starves the other (T4)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.processes import next_line, start_script

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(600)]

WAIT = 20.0  # seconds that one turn may take, less than anybody waits for a lock of the file (30)
TURNS, AT_ONCE = 12, 4

WORKER = """
import asyncio, json, sys, time
from pathlib import Path
from support.agents import answering, scripted_agent

home, name, turns, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])

async def main():
    took = []

    async def talk(agent, thread):
        for number in range(turns):
            begun = time.monotonic()
            turn = await agent.thread(thread).converse(f"{name} {thread} {number}")
            took.append(time.monotonic() - begun)
            assert turn.text == "Fine."

    async with scripted_agent(home, answering(), settings={"thread_wait": 60}) as agent:
        await agent.thread(f"{name} warms up").converse("Hello")  # what is loaded for it counts for nobody
        print("open", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        await asyncio.gather(*(talk(agent, thread) for thread in threads))
    print(json.dumps({"longest": max(took)}), flush=True)

asyncio.run(main())
"""


async def both(home: Path, ours: list[str], theirs: list[str]) -> list[dict[str, Any]]:
    """Run two workers side by side from the same moment on; what each tells."""
    processes = [
        await start_script(WORKER, home, name, str(TURNS), json.dumps(threads))
        for name, threads in (("ours", ours), ("theirs", theirs))
    ]
    for process in processes:
        assert await next_line(process) == "open"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    outs = await asyncio.gather(*(process.communicate() for process in processes))
    assert [(process.returncode, err) for process, (_, err) in zip(processes, outs, strict=True)] == [(0, b"")] * 2
    return [json.loads(out) for out, _ in outs]


def sound(home: Path) -> None:
    """The file is whole, and so are its chains of messages."""
    with closing(sqlite3.connect(home / "agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []


async def said(home: Path, thread: str) -> list[str]:
    async with scripted_agent(home, answering()) as agent:
        return [m.body["text"] for m in await agent.thread(thread).history(limit=1000) if m.kind == "message"]


async def test_two_processes_on_threads_of_their_own_keep_all_and_neither_starves(tmp_path: Path) -> None:
    ours, theirs = ([f"{name}{number}" for number in range(AT_ONCE)] for name in "ab")
    told = await both(tmp_path, ours, theirs)
    sound(tmp_path)
    for name, threads in (("ours", ours), ("theirs", theirs)):
        for thread in threads:
            assert await said(tmp_path, thread) == [f"{name} {thread} {number}" for number in range(TURNS)]
    assert max(one["longest"] for one in told) < WAIT, told


async def test_two_processes_on_the_same_threads_take_turns(tmp_path: Path) -> None:
    threads = ["a", "b"]
    told = await both(tmp_path, threads, threads)
    sound(tmp_path)
    for thread in threads:
        found = await said(tmp_path, thread)
        for name in ("ours", "theirs"):
            assert [text for text in found if text.startswith(name)] == [
                f"{name} {thread} {number}" for number in range(TURNS)
            ]
        assert len(found) == 2 * TURNS
    assert max(one["longest"] for one in told) < WAIT, told


CROWD = """
import asyncio, sys
from pathlib import Path
from support.agents import answering, scripted_agent

async def main():
    async with scripted_agent(Path(sys.argv[1]), answering(), settings={"thread_wait": 300}) as agent:
        async def talk():
            while True:
                await agent.thread("t").converse("Me again.")
                print("said", flush=True)

        talking = [asyncio.create_task(talk()) for _ in range(4)]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for task in talking:
            task.cancel()

asyncio.run(main())
"""


@pytest.mark.on_every_database
async def test_one_process_gets_a_thread_on_which_turns_of_another_never_stop(tmp_path: Path) -> None:
    process = await start_script(CROWD, tmp_path)
    assert await next_line(process) == "said"
    async with scripted_agent(tmp_path, answering(), settings={"thread_wait": WAIT}) as agent:
        for _ in range(2):
            assert (await agent.thread("t").converse("And me?")).text == "Fine."
    assert process.returncode is None
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"stop\n")
    while await next_line(process):
        pass
    assert await process.wait() == 0
