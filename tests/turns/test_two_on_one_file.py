"""Two processes on one SQLite file, both busy: nothing is lost or mixed up, and neither starves the other (T4)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

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


async def test_two_processes_on_threads_of_their_own_and_on_a_shared_one_keep_all_and_neither_starves(
    tmp_path: Path,
) -> None:
    threads = {name: [f"{name}{number}" for number in range(AT_ONCE)] + ["both"] for name in ("ours", "theirs")}
    processes = [
        await start_script(WORKER, tmp_path, name, str(TURNS), json.dumps(own)) for name, own in threads.items()
    ]
    for process in processes:
        assert await next_line(process) == "open"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    outs = await asyncio.gather(*(process.communicate() for process in processes))
    assert [(process.returncode, err) for process, (_, err) in zip(processes, outs, strict=True)] == [(0, b"")] * 2
    assert max(json.loads(out)["longest"] for out, _ in outs) < WAIT, outs
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    async with scripted_agent(tmp_path, answering()) as agent:
        for name, own in threads.items():
            for thread in own:
                history = await agent.thread(thread).history(limit=1000)
                said = [each.body["text"] for each in history if each.kind == "message"]
                assert [text for text in said if text.startswith(name)] == [
                    f"{name} {thread} {n}" for n in range(TURNS)
                ]
                assert len(said) == (2 if thread == "both" else 1) * TURNS
