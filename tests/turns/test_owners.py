"""One owner a thread (T4): turns of other processes, and owners that were taken over."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, answering, scripted_agent, standing
from support.processes import next_line, start_script
from worldagent import WorldAgent
from worldagent.core.errors import LeaseLost, ThreadBusy
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")

OWNER = """
import asyncio, sys
from pathlib import Path
from support.agents import scripted_agent
from worldagent.testing import ScriptedLM

async def reply(call):
    print("asked", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return {"reply": "from the other"}

async def main():
    async with scripted_agent(Path(sys.argv[1]), ScriptedLM(reply)) as agent:
        print((await agent.thread("t").converse("from the other process")).text, flush=True)

asyncio.run(main())
"""


async def owner(home: Path) -> asyncio.subprocess.Process:
    """Start a process that is in the middle of a turn on the thread `t`."""
    process = await start_script(OWNER, home)
    assert await next_line(process) == "asked"
    return process


async def said(agent: WorldAgent) -> list[tuple[str, str]]:
    return [(m.kind, str(m.body.get("text", ""))) for m in await agent.thread("t").history(limit=1000)]


async def test_a_turn_waits_for_the_turn_of_another_process_or_says_that_the_thread_is_busy(tmp_path: Path) -> None:
    process = await owner(tmp_path)
    async with scripted_agent(tmp_path, answering("here"), settings={"thread_wait": 0.1}) as impatient:
        with pytest.raises(ThreadBusy, match=r"'novel/t'.*0\.1 s; try again") as caught:
            await impatient.thread("t").converse("too soon")
        assert caught.value.turn_id is not None
        assert (await impatient.thread("other").converse("Hi")).text == "here"
    async with scripted_agent(tmp_path, answering("here")) as agent:
        waiting = asyncio.create_task(agent.thread("t").converse("after you"))
        assert process.stdin is not None
        process.stdin.write(b"\n")
        assert await next_line(process) == "from the other"
        assert (await asyncio.wait_for(waiting, 20)).text == "here"
        assert await process.wait() == 0
        assert await said(agent) == [
            ("message", "from the other process"),
            ("answer", "from the other"),
            ("message", "after you"),
            ("answer", "here"),
        ]


def rows(home: Path) -> dict[str, list[Any]]:
    """Everything that the agent's database holds, its owners apart."""
    connection = sqlite3.connect(home / "agent.db")
    try:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
            for table in ("checkpoints", "writes", "wa_message")
        }
    finally:
        connection.close()


def take_over(home: Path) -> None:
    """Do what another owner does that believes the lock to be free, as on a file system that forgets locks."""
    connection = sqlite3.connect(home / "agent.db")
    with connection:
        connection.execute("UPDATE wa_epoch SET epoch = epoch + 1 WHERE key = 'novel/t'")
    connection.close()


PLAN = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}


@pytest.mark.parametrize("call", [1, 3])
async def test_turn_of_a_replaced_owner_writes_nothing_more(tmp_path: Path, call: int) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()
    replies: list[Any] = [PLAN, {"result": "Weak."}, {"reply": "It is weak."}]

    async def reply(this: ScriptedCall) -> Any:
        if this.index == call:
            asked.set()
            await gate.wait()
        return replies[this.index - 1]

    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[CRITIC]) as agent:
        thread, events = agent.thread("t"), list[Any]()

        async def follow() -> None:
            async with thread.stream("Good?") as stream:
                async for event in stream:
                    events.append(event)

        late = asyncio.create_task(follow())
        await asyncio.wait_for(asked.wait(), 20)
        take_over(tmp_path)
        before = rows(tmp_path)
        gate.set()
        with pytest.raises(LeaseLost, match=r"'novel/t'.*drop this work") as caught:
            await asyncio.wait_for(late, 20)
        assert caught.value.retryable
        assert rows(tmp_path) == before
        # The answer that was streamed is in no log, so it does not stand either.
        assert standing(events) == ""
        assert (events[-1].type, events[-1].code) == ("turn_ended", "lease_lost")
    async with scripted_agent(tmp_path, answering("here"), workers=[CRITIC]) as agent:
        assert (await agent.thread("t").converse("Again")).text == "here"


TURNS, AT_ONCE = 12, 4
