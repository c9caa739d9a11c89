"""Exports to streams and imports from them, and contents that are too long for one line."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.homes import read, write
from worldagent.core.errors import ExportInvalid, InvalidArgument

FILES = "worldagent.agent.upkeep.thread_files"


BOUND = 60.0  # seconds


@contextmanager
def feeding(work: Callable[[], object]) -> Generator[None]:
    """Have a thread write into a pipe meanwhile; where nobody reads, it holds up neither the test nor the process."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(BOUND)
    assert not thread.is_alive(), "what was written has not been read"


@pytest.mark.requirement("T4")
async def test_a_thread_goes_through_a_stream_and_a_pipe(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t1").converse("one", attachments=[b"\0" * 2_000_000])
        said = await agent.thread("t1").history()
        stream = io.BytesIO()
        exported = await agent.upkeep.export("t1", stream)
        assert (exported.file, exported.messages, exported.attachments) == (None, 2, 1)
        begun = io.BytesIO(b"what came before" + stream.getvalue())
        begun.seek(len(b"what came before"))
        assert (await agent.upkeep.import_thread(begun, to="t2")).made
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with feeding(lambda: pipe.write_bytes(stream.getvalue())):
            assert (await asyncio.wait_for(agent.upkeep.import_thread(pipe, to="t3"), BOUND)).made
        end, beginning = os.pipe()
        with feeding(lambda: _fed(beginning, stream.getvalue())), os.fdopen(end, "rb") as source:
            assert (await asyncio.wait_for(agent.upkeep.import_thread(source, to="t4"), BOUND)).made
        for name in ("t2", "t3", "t4"):
            assert await agent.thread(name).history() == said
        with pytest.raises(InvalidArgument, match="the stream gives text"):
            await agent.upkeep.import_thread(io.StringIO("{}"), to="t5")  # type: ignore[arg-type]  # what it refuses
        with pytest.raises(ExportInvalid, match=r"line \d+ of 'the stream' is incomplete"):
            await agent.upkeep.import_thread(io.BytesIO(stream.getvalue()[:-20]), to="t5")


@pytest.mark.requirement("T4")
async def test_a_content_that_is_longer_than_any_line_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{FILES}.MAX_LINE_BYTES", 4000)
    monkeypatch.setattr(f"{FILES}.PIECE_BYTES", 1000)
    file, data = tmp_path / "t1.jsonl", [os.urandom(100_000), os.urandom(999)]
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t1").converse("one", attachments=data)
        assert (await agent.upkeep.export("t1", file)).attachments == 2
        await agent.upkeep.remove("t1")
        lines = read(file)
        pieces = [place for place, line in enumerate(lines) if "attachment" in line]
        assert len(pieces) == 101
        assert max(map(len, file.read_bytes().splitlines())) < 4000
        swapped = list(lines)
        first = max(pieces[:2], key=lambda place: lines[place]["attachment"] == lines[place + 1]["attachment"])
        swapped[first], swapped[first + 1] = lines[first + 1], lines[first]
        write(tmp_path / "swapped", swapped)
        with pytest.raises(ExportInvalid, match=r"line \d+ of .* begins a content with another hash"):
            await agent.upkeep.import_thread(tmp_path / "swapped")
        assert (await agent.upkeep.import_thread(file)).made
        [message, _] = await agent.thread("t1").history()
        assert [await agent.attachments.read(one) for one in agent.attachments.of(message)] == data


def _fed(handle: int, data: bytes) -> None:
    with os.fdopen(handle, "wb") as pipe:
        pipe.write(data)
