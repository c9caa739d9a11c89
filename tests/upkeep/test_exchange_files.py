"""What an export may write over, what is left where it cannot, and attachments that a prune meets on their way in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument
from worldagent.memory.attachments import Attachments

DATA = (b"name,size\nhat,7\n", b"name,size\ncap,8\n")
OWN = ("roles.db-journal", "attachments/t1.jsonl")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("name", OWN)
async def test_an_export_takes_no_place_of_the_homes_own(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    (tmp_path / "link").symlink_to(home)
    # Traces are written whenever there is time, and their file is made with the first.
    async with scripted_agent(home, answering(), settings={"trace": False}) as agent:
        await agent.thread("t1").converse("one", attachments=[DATA[0]])
        before = files(home)
        for folder in (home, tmp_path / "link", home / "attachments" / ".."):
            with pytest.raises(InvalidArgument, match="belongs to the home; name a file outside"):
                await agent.upkeep.export("t1", folder / name)
        assert set(files(home)) == set(before)
        assert (await agent.upkeep.export("t1", home / "t1.jsonl")).messages == 2
        await agent.thread("t1").converse("two")


@pytest.mark.requirement("T4")
async def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t1").converse("one")
        file = tmp_path / "t1.jsonl"
        await agent.upkeep.export("t1", file)
        await agent.thread("t1").converse("two")
        assert (await agent.upkeep.export("t1", file)).messages == 4
        file.write_bytes(file.read_bytes()[:-20])
        assert (await agent.upkeep.export("t1", file)).messages == 4
        for said in (b"a letter\n", b"", b'{"version":1}\n', b"\xff" * 2_000_000, b"[" * 100_000):
            other = tmp_path / "other"
            other.write_bytes(said)
            with pytest.raises(InvalidArgument, match="is not an export of a thread; name a file that does not exist"):
                await agent.upkeep.export("t1", other)
            assert other.read_bytes() == said
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "nothing")
        with pytest.raises(InvalidArgument, match="is not an export of a thread"):
            await agent.upkeep.export("t1", link)
        assert link.is_symlink()


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("step", ["keep", "hold"])
async def test_what_is_imported_outlasts_a_prune_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / "t1.jsonl"
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await exported(agent, file)
        await agent.upkeep.remove("t1")
        done = getattr(Attachments, step)

        async def pruned(store: Attachments, loaded: Sequence[Any]) -> None:
            await done(store, loaded)
            dropped = await store.drop_unreferenced()
            assert step == "keep" or dropped == (), "it is held until its messages are there"

        with monkeypatch.context() as patch:
            patch.setattr(Attachments, step, pruned)
            assert (await agent.upkeep.import_thread(file)).made
        assert await read(agent) == list(DATA)
        assert not list((tmp_path / "home" / "attachments").rglob(".held-*"))
        await agent.upkeep.remove("t1")
        assert not [path for path in (tmp_path / "home" / "attachments").rglob("*") if path.is_file()]


async def exported(agent: WorldAgent, file: Path) -> None:
    """Export a thread whose first message has attachments."""
    await agent.thread("t1").converse("Look", attachments=DATA)
    await agent.upkeep.export("t1", file)


async def read(agent: WorldAgent) -> list[bytes]:
    """What is attached to the first message of the thread."""
    message = (await agent.thread("t1").history())[0]
    return [await agent.attachments.read(one) for one in agent.attachments.of(message)]
