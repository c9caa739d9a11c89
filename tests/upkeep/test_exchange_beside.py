"""Exports and imports during a removal of what they read, or killed: complete, or the thread is not there (D10)."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.homes import database_of, rows
from support.processes import killed, start_script
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument
from worldagent.memory.attachments import Attachments

DATA = b"name,size\nhat,7\n"

Work = Callable[[], Coroutine[Any, Any, Any]]


class Reads:
    """Does some work before a read of an agent's database, or of its attachments: the first is number 0."""

    def __init__(self, patch: pytest.MonkeyPatch, agent: WorldAgent, place: int, work: Work) -> None:
        self.done = False
        self._left = place
        self._work = work
        database, load = database_of(agent), Attachments.read
        read = database.read

        async def hooked(*given: Any) -> Any:
            await self._count()
            return await read(*given)

        async def loaded(store: Attachments, *given: Any) -> Any:
            await self._count()
            return await load(store, *given)

        patch.setattr(database, "read", hooked)
        patch.setattr(Attachments, "read", loaded)

    async def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            await self._work()
            self.done = True


@pytest.mark.requirement("T4")
@pytest.mark.on_every_database
async def test_export_of_a_removed_thread_is_complete_or_fails(tmp_path: Path) -> None:
    outcomes, removed = list[bool](), True
    async with (
        scripted_agent(tmp_path / "home", answering()) as agent,
        scripted_agent(tmp_path / "home", answering()) as other,
    ):
        for place in range(100):
            file, thread = tmp_path / f"{place}.jsonl", agent.thread("t1")
            for text in ("one", "two"):
                await thread.converse(text, attachments=[DATA])
            said = await thread.history()
            await thread.fork(at=said[1].id, to="fork")
            with pytest.MonkeyPatch.context() as patch:
                reads = Reads(patch, agent, place, lambda: other.upkeep.remove("t1"))
                exported, problem = None, ""
                try:
                    exported = await agent.upkeep.export("t1", file)
                except InvalidArgument as error:
                    problem = error.problem
            outcomes.append(exported is not None)
            if exported is None:
                assert problem == "thread 'novel/t1' has no message"
                assert not file.exists()
            else:
                assert (exported.messages, exported.attachments, exported.missing) == (4, 1, ())
                assert (await agent.upkeep.import_thread(file, to="again")).messages == 4
                assert await agent.thread("again").history() == said
                await agent.upkeep.remove("again")
            await agent.upkeep.remove("t1")
            await agent.upkeep.remove("fork")
            removed = reads.done
            if not removed:
                break
    assert not removed, "it came after all reads"
    assert outcomes[-1]
    assert outcomes.count(False) > 4, "a removal came in the middle"


IMPORTING = """
import asyncio, os, sys
from contextlib import aclosing
from pathlib import Path
from worldagent import Storage
from worldagent.agent.stores import Stores
from worldagent.agent.upkeep import Upkeep
from worldagent.memory.attachments import Attachments
from worldagent.memory.branches import Branches
from worldagent.memory.upkeep import ReadMessage

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
    match left:
        case -1: Branches.write = staticmethod(write)
        case -2: Attachments.settle = settle
        case _: ReadMessage.put_back = put_back
    async with aclosing(await Stores.open(storage)) as stores:
        await Upkeep(stores, "novel").import_thread(Path(sys.argv[2]))

asyncio.run(main())
"""


@pytest.mark.requirement("T4", "T5")
@pytest.mark.on_every_database
@pytest.mark.parametrize("at", [1, -1, -2])
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
