"""An import whose process is killed: no part of the conversation is there, and the same import makes it complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.processes import killed, start_script
from support.tables import rows

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.on_every_database]

IMPORTING = """
import asyncio, os, sys
from pathlib import Path
from worldagent import Storage
from worldagent.agent.threads import SCHEMAS
from worldagent.agent.upkeep import Upkeep, UpkeepParts
from worldagent.memory.attachments import Attachments
from worldagent.memory.branches import Branches
from worldagent.memory.upkeep import ReadMessage
from worldagent.storage import Database

def wait(*given):
    print("there", flush=True)
    sys.stdin.readline()  # until it is killed

async def settle(*given):
    wait()

left = int(sys.argv[3])

def put_back(message, *given, put_back=ReadMessage.put_back):
    global left
    left -= 1
    return wait() if left == 0 else put_back(message, *given)

def write(*given, write=Branches.write):
    write(*given)
    wait()

async def main():
    storage = Storage(home=Path(sys.argv[1]), url=os.environ.get("WORLDAGENT_DATABASE_URL"))
    database = await Database.open(storage.place, schemas=SCHEMAS)
    match left:
        case -1: Branches.write = staticmethod(write)
        case -2: Attachments.settle = settle
        case _: ReadMessage.put_back = put_back
    await Upkeep(UpkeepParts.of(storage, database), "novel").import_thread(Path(sys.argv[2]))

asyncio.run(main())
"""


@pytest.mark.parametrize("at", [1, -1, -2], ids=["first message", "third message", "last statement", "committed"])
async def test_a_killed_import_is_not_there_or_is_complete_and_is_finished_by_the_next(tmp_path: Path, at: int) -> None:
    file, home, data = tmp_path / "t1.jsonl", tmp_path / "home", b"name,size\nhat,7\n"
    async with scripted_agent(tmp_path / "before", answering()) as agent:
        await agent.thread("t1").converse("one", attachments=[data])
        await agent.thread("t1").converse("two")
        said = await agent.thread("t1").history()
        await agent.upkeep.export("t1", file)
        await agent.upkeep.remove("t1")
    await killed(await start_script(IMPORTING, home, file, str(at)))
    async with scripted_agent(home, answering()) as agent:
        committed = at == -2
        assert await agent.thread("t1").history() == (said if committed else ())
        assert [await rows(agent, table) for table in ("wa_message", "wa_branch", "wa_attachment")] == (
            [4, 1, 1] if committed else [0, 0, 0]
        )
        imported = await agent.upkeep.import_thread(file)
        assert (imported.made, imported.added) == (not committed, 0 if committed else 4)
        assert await agent.thread("t1").history() == said
        [attachment] = agent.attachments.of(said[0])
        assert await agent.attachments.read(attachment) == data
        await agent.upkeep.prune()
        assert await agent.attachments.read(attachment) == data
        assert (await agent.thread("t1").converse("three")).status == "done"
