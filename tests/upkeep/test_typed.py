"""What was typed in chats on a thread that is removed goes with it; the rest stays."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.jobs import Nothing, Said
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
    "/roles",
]


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=str(await ctx.calls.ask_person("Which?")))


async def test_what_was_typed_on_a_removed_thread_is_taken_out_of_the_history_of_chats(tmp_path: Path) -> None:
    file = Storage(home=tmp_path / "home").typed
    async with scripted_agent(tmp_path / "home", answering(), shapes=[Shape("ask", Nothing, Said, _ask)]) as agent:
        thread = agent.thread("t1")
        await thread.converse("Hello there")
        await thread.converse("/usr is a folder")
        turn = await thread.task("ask", {})
        await thread.resume({turn.pauses[0].id: "rather dark red"})
        assert await agent.upkeep.remove("other") is None
        file.write_text("".join(f"{json.dumps(text)}\n" for text in TYPED) + "not ours\n", encoding="ascii")
        assert await agent.upkeep.remove("t1") is not None
    assert file.read_text(encoding="ascii").endswith("not ours\n")
    kept = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()[:-1]]
    assert kept == ["Something else", "Hello there, you", "no such thing", "/roles"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(file.parent.glob(".*"))


async def test_a_history_that_cannot_be_changed_is_named_and_the_thread_is_gone_all_the_same(tmp_path: Path) -> None:
    Storage(home=tmp_path / "home").typed.mkdir(parents=True)
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t1").converse("Hello there")
        with pytest.raises(StorageUnavailable, match="may hold what was said on the thread"):
            await agent.upkeep.remove("t1")
        assert await agent.threads() == ()
