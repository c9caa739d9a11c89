"""The tool `web_search`, and the search over folders and pages that ships (P2, H9)."""

import asyncio
import os
import socket
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.tools import saying, site
from worldagent.core.errors import ParamsInvalid, SearchUnavailable, ToolFailed
from worldagent.testing import ScriptedLM
from worldagent.tools.web import LocalIndex, SearchHit, index, web_search_function

pytestmark = pytest.mark.timeout(60)


class Fixed:
    """A search that finds the same each time."""

    def __init__(self, *hits: SearchHit, delay: float = 0) -> None:
        self.hits = hits
        self.delay = delay
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, *, limit: int) -> Sequence[SearchHit]:
        self.asked.append((query, limit))
        await asyncio.sleep(self.delay)
        return self.hits


def written(folder: Path, **texts: str) -> Path:
    """A folder of Markdown files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


async def found(search: LocalIndex, query: str, limit: int = 8) -> list[str]:
    """The names of what is found, best first."""
    return [Path(each.url).name for each in await search.search(query, limit=limit)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that an index reads, by name."""
    made: list[str] = []
    read_file = index.read_file

    def read(one: index.Found) -> bytes | None:
        made.append(Path(one.place).name)
        return read_file(one)

    monkeypatch.setattr(index, "read_file", read)
    return made


async def test_what_a_host_can_search_is_asked_and_its_hits_are_held_to_the_limit(tmp_path: Path) -> None:
    long = "e" * 2000
    search = Fixed(*(SearchHit(title=long, url=f"https://x.org/{n}", excerpt=long) for n in range(30)))
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[web_search_function(search)]) as agent:
        got = await agent.call("web_search", {"query": "red hats", "limit": 3})
        assert search.asked == [("red hats", 3)]
        assert [each.url for each in got] == ["https://x.org/0", "https://x.org/1", "https://x.org/2"]
        assert [(len(each.title), len(each.excerpt)) for each in got] == [(300, 1000)] * 3
        for wrong in ({"query": ""}, {"query": "a", "limit": 0}, {"query": "a", "limit": 21}, {"query": "a" * 1001}):
            with pytest.raises(ParamsInvalid):
                await agent.call("web_search", wrong)


async def test_without_anything_to_search_it_says_what_to_do(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[web_search_function(None)]) as agent:
        with pytest.raises(SearchUnavailable) as caught:
            await agent.call("web_search", {"query": "hats"})
    assert "LocalIndex" in caught.value.remedy


async def test_a_search_that_takes_too_long_fails() -> None:
    with pytest.raises(ToolFailed, match=r"0\.1 seconds"):
        await web_search_function(Fixed(delay=30), timeout=0.1).body(query="x")


async def test_files_are_found_by_words_the_best_first(tmp_path: Path) -> None:
    docs = written(
        tmp_path / "docs",
        hats="# Hats\n\nA red hat and a blue hat are in the shop.",
        shoes="Shoes of any colour, one red.",
        cups="# Cups\n\nOnly cups in here.",
    )
    search = LocalIndex([docs])
    got = await search.search("red hat", limit=8)
    assert [(each.title, Path(each.url).name) for each in got] == [("Hats", "hats.md"), ("shoes.md", "shoes.md")]
    assert "red hat" in got[0].excerpt
    assert got[0].url == str(docs / "hats.md")
    assert await found(search, "red hat", limit=1) == ["hats.md"]
    assert await found(search, "hats shop") == ["hats.md"]
    assert await found(search, "teapot") == []


async def test_words_are_found_in_any_form_and_script(tmp_path: Path) -> None:
    search = LocalIndex([written(tmp_path, one="Running in Köln", two="ὁ Σωκράτης", three="запуск")])
    for query, name in (("run", "one.md"), ("koln", "one.md"), ("ΣΩΚΡΆΤΗΣ", "two.md"), ("Запуск", "three.md")):
        assert await found(search, query) == [name]


@pytest.mark.parametrize("query", ['"hat', "NEAR(hat, 2)", "q\0z", "\ud800"])
async def test_no_query_is_an_error(tmp_path: Path, query: str) -> None:
    search = LocalIndex([written(tmp_path, hats="A hat, and no other.")])
    assert await found(search, query) == (["hats.md"] if "hat" in query else [])


async def test_only_what_has_changed_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    docs = written(tmp_path / "docs", a="apple", b="banana", c="cherry")
    search = LocalIndex([docs])
    assert await found(search, "apple") == ["a.md"]
    assert sorted(reads) == ["a.md", "b.md", "c.md"]
    reads.clear()
    assert await found(search, "banana") == ["b.md"]
    assert reads == []
    written(docs, b="damson plum", d="elder")
    (docs / "c.md").unlink()
    assert await found(search, "damson") == ["b.md"]
    assert sorted(reads) == ["b.md", "d.md"]
    assert await found(search, "banana") == []
    assert await found(search, "cherry") == []
    assert await found(search, "elder") == ["d.md"]


async def test_an_index_in_a_file_is_there_for_the_next_process(tmp_path: Path, reads: list[str]) -> None:
    docs = written(tmp_path / "docs", a="apple", b="banana")
    path = tmp_path / "deep" / "index.db"
    assert await found(LocalIndex([docs], path=path), "apple") == ["a.md"]
    reads.clear()
    assert await found(LocalIndex([docs], path=path), "banana") == ["b.md"]
    assert reads == []


async def test_nothing_outside_of_a_folder_is_read(tmp_path: Path, reads: list[str]) -> None:
    written(tmp_path / "outside", secret="canary")
    docs = written(tmp_path / "docs", a="apple")
    written(docs / ".hidden", inner="canary")
    written(docs, **{".env": "canary"})
    os.symlink(tmp_path / "outside", docs / "linked")
    os.symlink(tmp_path / "outside" / "secret.md", docs / "link.md")
    os.symlink(docs, docs / "loop")
    (docs / "data.bin").write_text("canary", encoding="utf-8")
    search = LocalIndex([docs])
    assert await found(search, "canary") == []
    assert await found(search, "apple") == ["a.md"]
    assert reads == ["a.md"]


@pytest.mark.parametrize("name", ["sub", "sub/deep/a.md"])
async def test_link_in_place_of_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    outside = tmp_path / "outside"
    written(outside / "deep", a="canary")
    targets = {"sub": outside, "sub/deep/a.md": outside / "deep" / "a.md"}
    docs = tmp_path / "docs"
    written(docs / "sub" / "deep", a="apple")
    written(docs, b="apple")
    find_files = index.find_files

    def swapped(*sources: Any, **options: Any) -> list[index.Found]:
        listed = find_files(*sources, **options)
        (docs / name).rename(tmp_path / "moved")
        os.symlink(targets[name], docs / name)
        monkeypatch.setattr(index, "find_files", find_files)
        return listed

    monkeypatch.setattr(index, "find_files", swapped)
    search = LocalIndex([docs])
    assert await found(search, "canary apple") == ["b.md"]
    assert await found(search, "canary") == []


async def test_pipes_folders_and_sockets_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = written(tmp_path, a="apple")
    os.mkfifo(docs / "pipe.md")
    (docs / "folder.md").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(docs)  # the name of a socket is short
        listening.bind("socket.md")
        async with asyncio.timeout(20):
            assert await found(LocalIndex([docs]), "apple") == ["a.md"]


async def test_files_and_bytes_are_bounded(tmp_path: Path, reads: list[str]) -> None:
    docs = written(tmp_path, **{f"f{n}": "apple " * 20 for n in range(9)})
    assert await found(LocalIndex([docs], files=3), "apple", limit=20) == ["f0.md", "f1.md", "f2.md"]
    assert await found(LocalIndex([docs], size=300), "apple", limit=20) == ["f0.md", "f1.md"]
    (docs / "f0.md").write_bytes(b"x" * (3 << 20) + b" lateword")
    assert await found(LocalIndex([docs]), "lateword") == []
    assert len(reads) == 3 + 2 + 9


async def test_pages_are_found_and_not_fetched_again(tmp_path: Path) -> None:
    async with site(saying("<title>Felt</title><p>All about felt hats.", "text/html")) as at:
        url = f"http://127.0.0.1:{at.port}/felt"
        sources = [url, str(written(tmp_path / "docs", a="apple hats"))]
        search = LocalIndex(sources, path=tmp_path / "index.db", allow_private=True)
        (got,) = await search.search("felt", limit=3)
        assert (got.title, got.url, got.excerpt) == ("Felt", url, "All about felt hats.")
        assert {each.url for each in await search.search("hats")} == {url, str(tmp_path / "docs" / "a.md")}
        again = LocalIndex(sources, path=tmp_path / "index.db", allow_private=True)
        assert len(await again.search("felt")) == 1
        assert len(at.asked) == 1


async def test_a_page_inside_the_network_is_not_fetched_unless_allowed(tmp_path: Path) -> None:
    async with site(saying("canary")) as at:
        search = LocalIndex([f"http://127.0.0.1:{at.port}/", written(tmp_path, a="apple")])
        assert await found(search, "canary") == []
        assert await found(search, "apple") == ["a.md"]
    assert at.asked == []


async def test_folders_without_a_text_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SearchUnavailable, match="nothing to search"):
            await LocalIndex([folder]).search("x")


async def test_a_file_that_is_not_an_index_is_refused_and_unchanged(tmp_path: Path) -> None:
    docs = written(tmp_path / "docs", a="apple")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as rows:
        rows.execute("CREATE TABLE documents (mine TEXT)")
    rows.close()
    (tmp_path / "text.db").write_text("no database at all " * 100, encoding="utf-8")
    before = other.read_bytes()
    for path in (other, tmp_path / "text.db", tmp_path / "text.db" / "below", docs):
        with pytest.raises(SearchUnavailable, match="cannot be used"):
            await LocalIndex([docs], path=path).search("apple")
    assert other.read_bytes() == before
