"""What was typed in chats on a thread that is removed goes with it, whatever a kill leaves; the rest stays."""

import asyncio
import json
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Nothing, Said, answering, scripted_agent, shape, which
from support.homes import found
from support.processes import start_script
from worldagent import Storage
from worldagent.core.errors import StorageUnavailable
from worldagent.graphs import Shape, TaskContext

TYPED = [
    "Hello there",
    "  Hello there",
    "/edit Hello there",
    "Something else",
    "//usr is a folder",
    "rather dark red",
    "Hello there, you",
    "no such thing",
    "/thread t1",
    "/new t1",
    "/thread t10",
    "/roles",
]
GUEST = 'Ana Maria Ruiz de la Vega, who "stays" in Córdoba'
QUOTED = json.dumps(GUEST, ensure_ascii=False)


class Guest(BaseModel):
    name: str
    ok: bool = True


async def _fill(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=(await ctx.calls.ask_person("Who?", form=Guest)).name)


def agent_at(home: Path) -> Any:
    shapes = [shape(which, "ask"), Shape("fill", Nothing, Said, _fill)]
    return scripted_agent(home, answering(), shapes=shapes)


def write(home: Path, lines: list[Any]) -> Path:
    file = Storage(home=home).typed
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="ascii")
    return file


def read(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def on(thread: str, *texts: str) -> list[Any]:
    return [{"thread": thread, "text": text} for text in texts]


async def test_what_was_typed_on_a_removed_thread_is_taken_out_of_the_history_of_chats(tmp_path: Path) -> None:
    async with agent_at(tmp_path / "home") as agent:
        await agent.thread("t1").converse("Hello there")
        here = on("novel/t1", "Hello there", "2", f"name={QUOTED} ok=true", 'happened {"paid": 4711}', "/pauses")
        others = [*on("novel/t2", "Hello there", "t1"), *on("shop/t1", "Hello there", "/thread t1")]
        file = write(tmp_path / "home", [*here, *others, *on("novel/t2", "/thread t1", "/fork t1")])
        assert await agent.upkeep.remove("t1") is not None
    assert read(file) == others
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(file.parent.glob(".*"))


async def test_lines_without_a_thread_are_found_by_their_text(tmp_path: Path) -> None:
    async with agent_at(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        await thread.converse("Hello there")
        await thread.converse("/usr is a folder")
        turn = await thread.task("ask", {})
        await thread.resume({turn.pauses[0].id: "rather dark red"})
        file = write(tmp_path / "home", TYPED)
        assert await agent.upkeep.remove("other") is None
        assert read(file) == TYPED
        with file.open("a", encoding="ascii") as more:
            more.write("not ours\n")
        assert await agent.upkeep.remove("t1") is not None
    lines = file.read_text(encoding="ascii").splitlines()
    assert lines.pop() == "not ours"
    kept = ["Something else", "Hello there, you", "no such thing", "/thread t10", "/roles"]
    assert [json.loads(line) for line in lines] == kept


async def test_a_history_that_cannot_be_changed_is_named_and_the_thread_is_removed_once_it_can(tmp_path: Path) -> None:
    typed = Storage(home=tmp_path / "home").typed
    typed.mkdir(parents=True)
    async with agent_at(tmp_path / "home") as agent:
        await agent.thread("t1").converse("Hello there")
        said = await agent.thread("t1").history()
        with pytest.raises(StorageUnavailable, match="can contain messages of the thread and cannot be changed"):
            await agent.upkeep.remove("t1")
        assert await agent.thread("t1").history() == said
        typed.rmdir()
        assert await agent.upkeep.remove("t1") is not None
        assert await agent.threads() == ()


_KILLED = """
import asyncio, os, signal, sys
from contextlib import aclosing
from pathlib import Path
from worldagent import Storage
from worldagent.agent.stores import Stores
from worldagent.agent.upkeep import Upkeep, removal

def kill(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def forget(*given, forget_typed=removal.forget_typed):
    forget_typed(*given)
    kill()

async def main():
    storage = Storage(home=Path(sys.argv[1]))
    async with aclosing(await Stores.open(storage)) as stores:
        match sys.argv[2]:
            case "before": removal.forget_typed = kill
            case "after": removal.forget_typed = forget
            case "scrub": type(stores.database).scrub = kill
        await Upkeep(stores, "novel").remove("t1")

asyncio.run(main())
"""


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("at", ["before", "after", "scrub"])
async def test_removing_again_finishes_what_a_kill_left_of_it(tmp_path: Path, at: str) -> None:
    text = "a sentence of forty letters and some more for the scan"
    async with agent_at(tmp_path / "home") as agent:
        await agent.thread("t1").converse(text)
        file = write(tmp_path / "home", [text, *on("novel/t1", text), "Hello there"])
        child = await start_script(_KILLED, tmp_path / "home", at)
        assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
        await agent.upkeep.remove("t1")
        await agent.upkeep.prune()
        assert await agent.threads() == ()
    assert read(file) == ["Hello there"]
    assert found(tmp_path / "home", [text]) == []
