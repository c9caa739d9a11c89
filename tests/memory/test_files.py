"""Files as memory entries: they follow the files (M1)."""

import asyncio
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from worldagent import Memory
from worldagent.core.errors import InvalidArgument

pytestmark = pytest.mark.requirement("M1")


async def remembered(home: Path, *places: Path) -> list[tuple[str, str | None]]:
    """The texts of entries, and the files they are of, once an agent has been opened with these files."""
    lm = answering()
    async with scripted_agent(home, lm, memory=Memory(files=places)) as agent:
        await agent.thread("t").converse("When does the harbour open?")
        found = await agent.memory.list()
        assert all((each.kind, each.account, each.source.by) == ("fact", None, "file") for each in found)
        return sorted((each.text, each.source.path) for each in found)


async def test_entries_follow_their_files(tmp_path: Path) -> None:
    notes, single, home = tmp_path / "notes", tmp_path / "single.txt", tmp_path / "home"
    (notes / "deep").mkdir(parents=True)
    (notes / "harbour.md").write_text("The harbour opens at six.\n\n" + "x " * 480 + "\n\nIt closes at nine.")
    (notes / "deep" / "ferry.md").write_text("The ferry is red.")
    (notes / "picture.png").write_bytes(b"\x89PNG")
    single.write_text("\ufeffThe tower is old.")
    first = await remembered(home, notes, single)
    files = ["notes/deep/ferry.md", "notes/harbour.md", "notes/harbour.md", "single.txt"]
    assert sorted(str(path) for _, path in first) == files
    assert {text for text, _ in first} >= {"The ferry is red.", "The tower is old."}
    assert await remembered(home, notes, single) == first
    (notes / "deep" / "ferry.md").write_text("The ferry is blue.")
    (notes / "harbour.md").unlink()
    assert await remembered(home, notes, single) == [
        ("The ferry is blue.", "notes/deep/ferry.md"),
        ("The tower is old.", "single.txt"),
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no file or folder"),
        (b"\xff\xfe", "it must be UTF-8 text; leave it out"),
        (b"a\0b", "it must be UTF-8 text"),
        (b"x" * 1_000_001, "cannot be remembered"),
    ],
)
async def test_files_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "notes.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=problem):
        async with scripted_agent(tmp_path / "home", answering(), memory=Memory(files=(file,))):
            pass


@pytest.mark.on_every_database
async def test_agents_that_open_at_once_after_a_change_all_have_the_new_entries(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"

    async def texts() -> list[str]:
        async with scripted_agent(tmp_path / "home", answering(), memory=Memory(files=(file,))) as agent:
            return [entry.text for entry in await agent.memory.list()]

    for text in ("The ferry is red.", "The ferry is blue.", "The ferry is green."):
        file.write_text(text)
        assert await asyncio.gather(*(texts() for _ in range(4))) == [[text]] * 4
