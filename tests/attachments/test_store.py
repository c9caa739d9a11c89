"""The store of attachments: what may come in, what is kept, what goes, and what a kill leaves."""

import asyncio
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.attaching import attach_and_remove, stop_at
from support.homes import ADDRESS, PDF, PNG, change, data_uri, pieces, written
from support.postgres import new_database
from support.processes import call_of, killed, run_script, start_script
from worldagent.core.errors import (
    AttachmentInvalid,
    AttachmentMissing,
    InvalidArgument,
    StorageInvalid,
    StorageUnavailable,
)
from worldagent.core.events import AttachmentLeftOut
from worldagent.memory import log as log_module
from worldagent.memory.attachments import Attachment, AttachmentSource, Loaded

HASH = "ab" * 32


def damaged(home: Path, data: bytes, change: Callable[[Path], object]) -> None:
    """Change the file of the piece that holds `data`."""
    [path] = [path for path in (home / "attachments").rglob("*") if path.is_file() and path.read_bytes() == data]
    change(path)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("pipe", "pipe' cannot be attached: it is not a regular file"),
        ("empty.txt", "'empty.txt' is empty"),
        ("large.txt", "'large.txt' has more than 100 bytes"),
        ("lie.png", "'lie.png' should be 'image/png', but its content does not begin as one"),
        ("latin.txt", "'latin.txt' is 'text/plain' but not UTF-8"),
    ],
)
async def test_invalid_attachment_is_refused(tmp_path: Path, source: str | bytes, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, data in (("empty.txt", b""), ("large.txt", b"x" * 101), ("lie.png", b"GIF"), ("latin.txt", b"\xe4")):
        written(tmp_path, name, data)
    given: AttachmentSource = tmp_path / source if isinstance(source, str) else source
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm, settings={"attachment_limit": 100}) as agent:
        with pytest.raises(AttachmentInvalid) as told:
            await agent.thread("t").converse("Look.", attachments=[PNG, given])
        assert problem in told.value.problem
        assert await agent.thread("t").history() == ()
        assert await agent.thread("t").state() is None
    assert (lm.calls, pieces(tmp_path / "home")) == ([], {})


async def test_content_decides_the_media_type_before_the_name(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        add = agent.attachments.add
        assert (await add(written(tmp_path, "photo.txt", PNG))).media_type == "image/png"
        assert (await add(written(tmp_path, "data.json", b"[1]"))).kind == "text"
        assert (await add(b"\0\1", name="x.unknown")).media_type == "application/octet-stream"
        assert (await add(b"a,b", media_type="text/csv")).media_type == "text/csv"
        assert (await add("https://pictures.example/?id=7", media_type="image/png")).name == "pictures.example"
        for source, media_type in ((PNG, "image/jpeg"), (b"a,b", "text"), ("https://pictures.example/?id=7", None)):
            with pytest.raises(AttachmentInvalid):
                await add(source, media_type=media_type)


async def test_content_that_is_not_stored_or_has_another_hash_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        store = agent.attachments
        with pytest.raises(InvalidArgument, match=r"the content of 'lake\.jpg' is not stored"):
            await store.open(await store.add(ADDRESS))
        named = Attachment(name="x.png", media_type="image/png", size=3, sha256=HASH)
        with pytest.raises(AttachmentInvalid, match=f"the content does not have the hash {HASH}"):
            await store.keep([Loaded(named, PNG)])
        sha256 = hashlib.sha256(PDF).hexdigest()
        (tmp_path / "attachments" / sha256[:2] / sha256).mkdir(parents=True)
        with pytest.raises(StorageUnavailable, match="is a folder where a file should be"):
            await store.add(PDF)


async def test_content_is_stored_once_for_its_owner_alone(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        first, second = [await agent.attachments.add(PNG, name=name) for name in ("a.png", "b.png")]
        await agent.thread("t").converse("Look.", attachments=[first, second])
    assert first.sha256 == second.sha256
    assert pieces(tmp_path) == {str(first.sha256): PNG}
    for path in (tmp_path / "attachments", *(tmp_path / "attachments").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def swap(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\nswapped picture")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [Path.unlink, swap, pipe])
async def test_missing_or_changed_content_is_named(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent, asyncio.timeout(30):  # nothing waits at a pipe
        thread = agent.thread("t")
        await thread.converse("Look.", attachments=[PNG])
        [asked, _] = await thread.history()
        [photo] = agent.attachments.of(asked)
        damaged(tmp_path, PNG, damage)
        with pytest.raises(AttachmentMissing, match=rf"'attachment\.png' \({photo.sha256}\) is gone"):
            await agent.attachments.open(photo)
        with pytest.raises(AttachmentMissing, match=str(photo.sha256)):
            await agent.attachments.open(str(photo.sha256))
        if damage is pipe:
            with pytest.raises(AttachmentMissing):
                await agent.attachments.add(photo)
        assert photo.sha256 not in await agent.attachments.drop_unreferenced(held=0)
        async with thread.stream("And now?") as stream:
            told = [event async for event in stream if isinstance(event, AttachmentLeftOut)]
        assert [(event.name, event.reason) for event in told] == [("attachment.png", "missing")]
        assert (lm.calls[-1].media, "its content is gone" in lm.calls[-1].text) == ((), True)
        # Who attaches the content anew mends it.
        await agent.thread("t").converse("Here it is.", attachments=[PNG])
        assert (await agent.attachments.open(photo)).read() == PNG


async def test_turn_with_a_missing_attachment_resumes_once_it_is_back(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        with pytest.raises(AttachmentMissing, match=HASH):
            await thread.converse(
                "Look.", attachments=[Attachment(name="x.png", media_type="image/png", size=3, sha256=HASH)]
            )
        assert await thread.history() == ()
        photo = await agent.attachments.add(PNG)
        damaged(tmp_path, PNG, lambda path: path.write_bytes(b"changed"))
        with pytest.raises(AttachmentMissing, match="is gone, or is not what was stored"):
            await thread.converse("Look.", attachments=[photo])
        damaged(tmp_path, b"changed", lambda path: path.write_bytes(PNG))
        assert (await thread.resume()).text == "Fine."
    assert [len(call.media) for call in lm.calls] == [1]


@pytest.mark.parametrize(
    "attachments", ["x", [{"name": "x", "media_type": "image/png", "sha256": "../../role.key", "bytes": 3}]]
)
async def test_odd_references_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attachments: Any) -> None:
    monkeypatch.setattr(log_module, "_check_id", lambda *_: None)  # a change that forged the ids too
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.thread("t").converse("Look.")
        [asked, _] = await agent.thread("t").history()
        body = json.dumps({"text": "Look.", "attachments": attachments})
        await change(agent, "UPDATE wa_message SET body=? WHERE id=?", (body, asked.id))
    async with scripted_agent(tmp_path, lm) as agent:  # one that has not read the thread yet
        with pytest.raises(StorageInvalid, match=f"the attachments of the message '{asked.id}' cannot be read"):
            await agent.thread("t").converse("And now?")
        await agent.attachments.drop_unreferenced()
    assert len(lm.calls) == 1


async def test_read_only_folder_fails_the_turn_before_its_message(tmp_path: Path) -> None:
    written(tmp_path, "attachments", b"in the way")
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises(StorageUnavailable, match="attachments"):
            await agent.thread("t").converse("Look.", attachments=[PNG])
        assert await agent.thread("t").history() == ()


@pytest.mark.requirement("T4")
async def test_what_is_attached_in_another_home_is_named_with_where_to_bring_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    shared = {"database_url": new_database()}
    async with scripted_agent(one, answering(), settings=shared) as here:
        await here.thread("t").converse("Look.", attachments=[b"a,b\n1,2\n"])
        async with scripted_agent(other, answering(), settings=shared) as there:
            thread = there.thread("t")
            [said, _] = await thread.history()
            [attachment] = there.attachments.of(said)
            missing = rf"{attachment.sha256}.*; copy its file to '{other / 'attachments'}', such as from the home"
            with pytest.raises(AttachmentMissing, match=missing):
                await there.attachments.read(attachment)
            assert (await thread.converse("And now?")).text == "Fine."
            with pytest.raises(AttachmentMissing, match=missing):
                await thread.replay(said.id, to="again")
            shutil.copytree(one / "attachments", other / "attachments", dirs_exist_ok=True)
            assert await there.attachments.read(attachment) == b"a,b\n1,2\n"
            assert (await there.thread("again").resume()).text == "Fine."
            for name in ("t", "again"):
                await there.upkeep.remove(name)
            with pytest.raises(AttachmentMissing):
                await there.attachments.read(attachment)
        assert await here.attachments.read(attachment) == b"a,b\n1,2\n", "a home is tidied up by its own agents"
        assert (await here.upkeep.prune()).attachments == 1


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("point", ["content half written", "before the message", "before the answer"])
async def test_content_of_a_killed_process_is_complete_or_removed(tmp_path: Path, point: str) -> None:
    await killed(await start_script(call_of(stop_at, tmp_path, point)))
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
    await asyncio.gather(
        *(run_script(call_of(attach_and_remove, tmp_path, name, 8), limit=100) for name in ("a", "b", "c"))
    )
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        for state in await agent.threads():
            await agent.thread(state.thread).converse("And now?")
        assert await agent.attachments.drop_unreferenced() == ()
    assert [len(call.media) for call in lm.calls] == [1] * 12
    assert list(pieces(tmp_path).values()) == [PNG]
