"""A conversation that is exported to a file or a stream and imported again: the same messages, or nothing at all."""

import asyncio
import base64
import io
import json
import os
import stat
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import answering, scripted_agent
from support.homes import Line, branched, change, read, renamed, row_counts, write
from worldagent import Role, WorldAgent
from worldagent.core.errors import ExportInvalid, InvalidArgument, NameTaken, StorageInvalid, StorageUnavailable
from worldagent.memory import Draft, Message
from worldagent.memory.attachments import Attachments
from worldagent.testing import assert_no_role_leak

pytestmark = pytest.mark.requirement("T4")

ODD = 'Grüße, 日本, \N{GRINNING FACE}, "quoted" \\ and a line\nbreak'
EARLIER = Path(__file__).parents[1] / "fixtures" / "exports" / "version-1.jsonl"
SECRET = "Answer as the keeper of the seventh lighthouse would answer at night."


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[WorldAgent]:
    async with scripted_agent(tmp_path / "home", answering()) as opened:
        yield opened


async def said_on(agent: WorldAgent, name: str, *texts: str) -> tuple[Message, ...]:
    thread = agent.thread(name, account="ana")
    for text in texts:
        await thread.converse(text)
    return await thread.history(limit=1000)


@pytest.mark.requirement("R7")
@pytest.mark.on_every_database
async def test_imported_thread_has_all_messages_and_no_role(tmp_path: Path) -> None:
    file = tmp_path / "t1.jsonl"
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse(ODD, role=Role("keeper", SECRET))
        await thread.converse("two")
        said = await thread.history()
        exported = await agent.upkeep.export("t1", file)
        assert (exported.messages, exported.attachments, exported.missing) == (4, 0, ())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert_no_role_leak(file, SECRET)
        imported = await agent.upkeep.import_thread(file, to="copy")
        assert (imported.thread, imported.messages, imported.added, imported.made) == ("copy", 4, 0, True)
        assert row_counts(tmp_path / "home")["wa_message"] == 4, "what is there is not stored twice"
        copy = agent.thread("copy", account="ana")
        assert await copy.history() == said
        await copy.converse("three")
        assert len(await copy.history()) == 6
        assert await thread.history() == said
        assert await agent.upkeep.remove("t1") is not None
        assert (await copy.history())[:4] == said
        assert await agent.upkeep.remove("copy") is not None
        assert row_counts(tmp_path / "home")["wa_message"] == 0
        imported = await agent.upkeep.import_thread(file)
        assert (imported.thread, imported.added, imported.made) == ("t1", 4, True)
        assert await thread.history() == said
        await thread.converse("four")
        assert "two" in lm.calls[-1].text


async def test_repeated_import_changes_and_replaces_nothing(tmp_path: Path, agent: WorldAgent) -> None:
    file, other = tmp_path / "t1.jsonl", tmp_path / "t2.jsonl"
    await said_on(agent, "t1", "one")
    await agent.upkeep.export("t1", file)
    await said_on(agent, "t1", "two")
    said = await agent.thread("t1").history()
    imported = await agent.upkeep.import_thread(file)  # the thread has gone on since
    assert (imported.made, imported.added) == (False, 0)
    first = await agent.upkeep.import_thread(file, to="copy")
    again = await agent.upkeep.import_thread(file, to="copy")
    assert (first.made, again.made) == (True, False)
    await said_on(agent, "t2", "else")
    await agent.upkeep.export("t2", other)
    for taken in ("t1", "copy"):
        with pytest.raises(NameTaken, match=f"thread 'novel/{taken}' has another conversation; import it under"):
            await agent.upkeep.import_thread(other, to=taken)
    assert await agent.thread("t1").history() == said
    assert len(await agent.thread("copy").history()) == 2


async def test_a_long_thread_keeps_its_order_over_pages_and_its_marks(tmp_path: Path, agent: WorldAgent) -> None:
    file = tmp_path / "t1.jsonl"
    said = await said_on(agent, "t1", "one")
    drafts = [Draft("ana", "message", {"text": str(number)}) for number in range(450)]
    await branched(agent, "long", said[-1].id, *drafts)
    long = agent.thread("long")
    whole = await long.history(limit=1000)
    await long.keep(whole[3].id)
    assert (await agent.upkeep.export("long", file)).messages == 452
    await agent.upkeep.remove("long")
    await agent.upkeep.remove("t1")
    assert (await agent.upkeep.import_thread(file)).added == 452
    assert await long.history(limit=1000) == whole
    assert read(file)[-1]["kept"] == [whole[3].id]


async def test_attachments_go_along(tmp_path: Path, agent: WorldAgent) -> None:
    file, data = tmp_path / "t1.jsonl", b"name,size\nhat,7\n"
    thread = agent.thread("t1")
    await thread.converse("Look", attachments=[data])
    [message, _] = await thread.history()
    assert (await agent.upkeep.export("t1", file)).attachments == 1
    [attachment] = agent.attachments.of(message)
    removed = await agent.upkeep.remove("t1")
    assert removed is not None
    assert removed.attachments == 1
    assert not [found for found in (tmp_path / "home").rglob("*") if found.is_file() and data in found.read_bytes()]
    assert (await agent.upkeep.import_thread(file)).made
    assert await agent.attachments.read(attachment) == data
    for path in (tmp_path / "home" / "attachments").rglob("*"):
        if path.is_file():
            path.unlink()
    exported = await agent.upkeep.export("t1", file)
    assert (exported.attachments, exported.missing) == (0, (attachment.sha256,))


DEEP = json.loads("[" * 501 + "]" * 501)
SUMMARY = {"text": "Said.", "first": "0" * 32, "last": "0" * 32, "messages": 1, "results": []}
STRANGER = {"attachment": "0" * 64, "data": base64.b64encode(b"x").decode()}


def again(lines: list[Line], place: int, **values: Any) -> None:
    """Change a line, and give all lines ids that fit again."""
    lines[place].update(values)
    lines[:] = renamed(lines)


CHANGES: list[tuple[Callable[[list[Line]], object], str]] = [
    (lambda lines: lines[1]["body"].update(text="something else"), "is not that of its message"),
    (lambda lines: lines.pop(2), "line 3 of .* does not follow the one before it"),
    (lambda lines: lines[-1].update(kept=["0" * 32]), "line 6 of .* keeps messages that are missing"),
    (lambda lines: lines[1].update(role="x"), "line 2 of .* is not a valid line of an export: role"),
    (lambda lines: lines[0].update(version=2), "has version 2 of the format, and this package reads up to 1; install"),
    (lambda lines: lines.insert(-1, STRANGER), "line 6 of .* holds the content of an attachment that no earlier"),
    (lambda lines: again(lines, 1, at="9999-12-31T23:59:59+00:00"), "line 2 of .* cannot be read: at: "),
    (lambda lines: again(lines, 1, body={"text": 5}), r"line 2 of .* cannot be read: body\.text"),
    (lambda lines: lines[1]["body"].update(deep=DEEP), "line 2 of .* body: not JSON, or nested too deep"),
    (lambda lines: again(lines, 1, kind="summary", body=SUMMARY), r"line 2 of .* body\.last and body\.results must"),
    (lambda lines: again(lines, 1, turn="a\0b"), "line 2 of .* cannot be read: turn: must be a valid id"),
    (lambda lines: lines[0].update(version=True), "line 1 of .* version"),
    (lambda lines: lines[0].update(thread="a\nb"), "line 1 of .* thread"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
async def test_a_file_that_was_changed_is_refused_and_nothing_is_written(
    tmp_path: Path, agent: WorldAgent, change: Callable[[list[Line]], object], said: str
) -> None:
    file = tmp_path / "t1.jsonl"
    await said_on(agent, "t1", "Bonjour", "two")
    await agent.upkeep.export("t1", file)
    lines = read(file)
    change(lines)
    write(file, lines)
    await agent.upkeep.remove("t1")
    with pytest.raises(ExportInvalid, match=said) as caught:
        await agent.upkeep.import_thread(file)
    assert "Bonjour" not in str(caught.value)
    assert row_counts(tmp_path / "home")["wa_message"] == 0
    assert await agent.threads() == ()


async def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, agent: WorldAgent) -> None:
    file = tmp_path / "t1.jsonl"
    await said_on(agent, "t1", "one")
    await agent.upkeep.export("t1", file)
    whole = file.read_bytes()
    for cut in range(0, len(whole), 97):
        file.write_bytes(whole[:cut])
        with pytest.raises(ExportInvalid):
            await agent.upkeep.import_thread(file, to="copy")
    for other in (
        whole + b"{}\n",
        whole.replace(b"one", b"two"),
        whole.replace(b'"exported": "2', b'"exported": "1'),
        b"[]\n" + whole,
        b"\xff\n",
        b"[" * 100_000 + b"\n",
    ):
        file.write_bytes(other)
        with pytest.raises(ExportInvalid):
            await agent.upkeep.import_thread(file, to="copy")
    assert row_counts(tmp_path / "home")["wa_branch"] == 0


async def test_failed_export_or_import_leaves_no_file(tmp_path: Path, agent: WorldAgent) -> None:
    with pytest.raises(InvalidArgument, match="thread 'novel/t1' has no message"):
        await agent.upkeep.export("t1", tmp_path / "t1.jsonl")
    await said_on(agent, "t1", "one")
    with pytest.raises(StorageUnavailable, match="cannot be written"):
        await agent.upkeep.export("t1", tmp_path / "nowhere" / "t1.jsonl")
    with pytest.raises(InvalidArgument, match="must not contain a NUL character"):
        await agent.upkeep.export("t1", tmp_path / "a\0b")
    with pytest.raises(StorageUnavailable, match="is not a valid file name"):
        await agent.upkeep.import_thread(tmp_path / "a\0b")
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        await agent.upkeep.import_thread(tmp_path / "nothing.jsonl")
    await change(agent, "UPDATE wa_message SET body=? WHERE depth=0", ('{"text":"changed by a stranger"}',))
    with pytest.raises(StorageInvalid, match=r"is not what was written|has changed since"):
        await agent.upkeep.export("t1", tmp_path / "t1.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


ODD_MESSAGES: list[tuple[str, dict[str, Any], str]] = [
    ("", {"text": 5}, r"has changed since it was written: it cannot be read: body\.text; restore"),
    ("no/thread/key", {"text": "one"}, "the root of thread 'novel/odd' must be a thread key, got 'no/thread/key'"),
]


@pytest.mark.parametrize(("root", "body", "says"), ODD_MESSAGES)
async def test_messages_that_this_package_did_not_write_are_not_exported(
    tmp_path: Path, agent: WorldAgent, root: str, body: dict[str, Any], says: str
) -> None:
    await branched(agent, "odd", None, Draft("ana", "message", body), root=root)
    with pytest.raises(StorageInvalid, match=says):
        await agent.upkeep.export("odd", tmp_path / "odd.jsonl")


async def test_a_file_of_an_earlier_version_is_read_and_written_again_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "again.jsonl"
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        imported = await agent.upkeep.import_thread(EARLIER)
        assert (imported.thread, imported.added, imported.made) == ("t2", 3, True)
        said = await agent.thread("t2").history()
        assert [message.body["text"] for message in said][:2] == ["Look, a table", "Fine."]
        [attachment] = agent.attachments.of(said[0])
        assert await agent.attachments.read(attachment) == b"name,size\nhat,7\n"
        await agent.upkeep.export("t2", file)
    [header, *lines], [old, *others] = read(file), read(EARLIER)
    assert ({**header, "exported": 0}, lines[:-1]) == ({**old, "exported": 0}, others[:-1])
    assert (lines[-1]["kept"], lines[-1]["title"]) == ([said[0].id], "Of hats")


DATA = (b"name,size\nhat,7\n", b"name,size\ncap,8\n")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["roles.db-journal", "queue.db-wal", "attachments/t1.jsonl"])
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


async def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path, agent: WorldAgent) -> None:
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


@pytest.mark.parametrize("step", ["keep", "hold"])
async def test_import_survives_a_concurrent_prune(
    tmp_path: Path, agent: WorldAgent, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / "t1.jsonl"
    await agent.thread("t1").converse("Look", attachments=DATA)
    await agent.upkeep.export("t1", file)
    await agent.upkeep.remove("t1")
    done = getattr(Attachments, step)

    async def pruned(store: Attachments, loaded: Sequence[Any]) -> None:
        await done(store, loaded)
        dropped = await store.drop_unreferenced()
        assert step == "keep" or dropped == (), "it is held until its messages are there"

    with monkeypatch.context() as patch:
        patch.setattr(Attachments, step, pruned)
        assert (await agent.upkeep.import_thread(file)).made
    message = (await agent.thread("t1").history())[0]
    assert [await agent.attachments.read(one) for one in agent.attachments.of(message)] == list(DATA)
    assert not list((tmp_path / "home" / "attachments").rglob(".held-*"))
    await agent.upkeep.remove("t1")
    assert not [path for path in (tmp_path / "home" / "attachments").rglob("*") if path.is_file()]


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


async def test_a_thread_goes_through_a_stream_and_a_pipe(tmp_path: Path, agent: WorldAgent) -> None:
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


async def test_long_content_comes_back(tmp_path: Path, agent: WorldAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FILES}.MAX_LINE_BYTES", 4000)
    monkeypatch.setattr(f"{FILES}.PIECE_BYTES", 1000)
    await agent.thread("long").converse("x" * 4000)
    with pytest.raises(InvalidArgument, match="a message is longer than 4000 bytes"):
        await agent.upkeep.export("long", tmp_path / "long.jsonl")
    await agent.upkeep.remove("long")
    file, data = tmp_path / "t1.jsonl", [os.urandom(100_000), os.urandom(999)]
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
