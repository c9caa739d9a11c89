"""Processes that are killed while a message with attachments comes in, and what the next one finds (T5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.homes import PNG, data_uri, pieces
from support.processes import killed, run_script, start_script

KILLED = """
import asyncio, os, sys
from pathlib import Path
from support.agents import scripted_agent
from support.homes import PNG
from worldagent.memory import ConversationLog
from worldagent.testing import ScriptedLM

home, point = Path(sys.argv[1]), sys.argv[2]

def stop(*given, **more):
    print("there", flush=True)
    sys.stdin.read()

if point == "content half written":
    os.fsync = stop
if point == "before the message":
    ConversationLog.append = stop
if point == "before the answer":
    lm = ScriptedLM(stop)
else:
    lm = ScriptedLM([])

async def main():
    async with scripted_agent(home, lm) as agent:
        await agent.thread("t").converse("Look.", attachments=[PNG])

asyncio.run(main())
"""

MANY = """
import asyncio, sys
from pathlib import Path
from support.agents import answering, scripted_agent
from support.homes import PNG

async def main(home, name):
    async with scripted_agent(home, answering()) as agent:
        for n in range(8):
            thread = agent.thread(f"{name}{n}")
            await thread.converse("Look.", attachments=[PNG])
            if n % 2:
                await agent.upkeep.remove(thread.scope.thread)
            await agent.attachments.drop_unreferenced()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("point", ["content half written", "before the message", "before the answer"])
async def test_what_a_killed_process_leaves_is_whole_or_goes(tmp_path: Path, point: str) -> None:
    await killed(await start_script(KILLED, tmp_path, point))
    assert len(pieces(tmp_path)) == 1
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        if point == "before the answer":
            assert (await thread.resume()).text == "Fine."
            assert lm.calls[0].media == (("image", data_uri(PNG)),)
            assert await agent.attachments.drop_unreferenced(unfinished=0) == ()
            assert list(pieces(tmp_path).values()) == [PNG]
        else:
            assert await thread.history() == ()
            await agent.attachments.drop_unreferenced(unfinished=0)
            assert pieces(tmp_path) == {}
            assert (await thread.converse("Look.", attachments=[PNG])).text == "Fine."


@pytest.mark.on_every_database
@pytest.mark.requirement("T4")
async def test_processes_that_attach_and_remove_the_same_content_at_once_lose_none_of_it(tmp_path: Path) -> None:
    await asyncio.gather(*(run_script(MANY, tmp_path, name, limit=100) for name in ("a", "b", "c")))
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        for state in await agent.threads():
            await agent.thread(state.thread).converse("And now?")
        assert await agent.attachments.drop_unreferenced() == ()
    assert [len(call.media) for call in lm.calls] == [1] * 12
    assert list(pieces(tmp_path).values()) == [PNG]
