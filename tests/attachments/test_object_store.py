"""Attachments outside of the home: in an object store, or a folder, that several machines share (T4)."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.attaching import attach_and_remove, stop_at
from support.homes import OTHER_PNG, PDF, PNG, data_uri
from support.object_stores import KINDS, new_url, objects, put, register_s3, s3_server, wrong_names
from support.postgres import new_database
from support.processes import call_of, killed, run_script, start_script
from worldagent import Role, Settings, Storage
from worldagent.core.errors import (
    AttachmentMissing,
    InvalidArgument,
    MissingExtra,
    SettingsInvalid,
    StorageUnavailable,
)
from worldagent.memory import ConversationLog, Draft
from worldagent.memory.attachments import Loaded
from worldagent.memory.attachments.objects import ObjectPieces
from worldagent.testing import scan_for_roles

pytestmark = pytest.mark.requirement("T4")


@pytest.fixture(scope="module")
def server() -> Generator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store, which agents of this test use unless they say otherwise, in other processes as well."""
    return used(new_url(request.param, tmp_path), server, monkeypatch)


@pytest.fixture
def s3(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return used(new_url("s3", tmp_path), server, monkeypatch)


def used(url: str, server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**server, "WORLDAGENT_ATTACHMENTS_URL": url}.items():
        monkeypatch.setenv(name, value)
    return url


def whole(url: str) -> list[bytes]:
    """The contents in a store that has nothing else in it."""
    found = objects(url)
    assert all(len(name) == 64 for name in found), found.keys()
    return sorted(found.values())


@pytest.mark.requirement("R7")
async def test_two_machines_share_attachments_and_no_home_has_them(tmp_path: Path, url: str) -> None:
    shared = {"database_url": new_database(), "attachments_url": url}
    role = Role("keeper", "Speak of the lighthouse and the seven gulls only.")
    lm = answering()
    async with scripted_agent(tmp_path / "one", lm, settings=shared) as one:
        await one.thread("t").converse("Look.", attachments=[PNG, b"a,b\n1,2\n"], role=role)
    async with scripted_agent(tmp_path / "two", lm, settings=shared) as two:
        thread = two.thread("t")
        await thread.converse("And now?")
        assert lm.calls[1].media == (("image", data_uri(PNG)),)
        [asked, *_] = await thread.history()
        [picture, _] = two.attachments.of(asked)
        assert await two.attachments.read(picture) == PNG
    assert whole(url) == sorted([PNG, b"a,b\n1,2\n"])
    assert not any((tmp_path / name / "attachments").exists() for name in ("one", "two"))
    assert scan_for_roles(tmp_path, role.content).findings == ()
    assert role.content.encode() not in b"".join(objects(url).values())


@pytest.mark.on_every_database
async def test_content_goes_with_the_last_message_that_refers_to_it(tmp_path: Path, url: str) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        thread = agent.thread("t")
        await thread.converse("Look.", attachments=[PNG, PDF])
        await thread.fork(to="fork")
        await agent.thread("other").converse("Look.", attachments=[PDF])
        assert await agent.attachments.drop_unreferenced() == ()
        await agent.upkeep.remove("t")
        assert whole(url) == sorted([PNG, PDF])
        removed = await agent.upkeep.remove("fork")
        assert removed is not None
        assert removed.attachments == 1
        assert whole(url) == [PDF]
        await agent.upkeep.remove("other")
        added, other = await agent.attachments.add(PNG), await agent.attachments.add(OTHER_PNG)
        assert (await agent.upkeep.prune()).attachments == 0
        await thread.converse("Look.", attachments=[added])
        assert await agent.attachments.drop_unreferenced(held=0) == (other.sha256,)
        await agent.upkeep.remove("t")
    assert objects(url) == {}


@pytest.mark.on_every_database
@pytest.mark.parametrize("between", ["turn", "message", "content"])
async def test_content_that_is_attached_while_dropped_stays(tmp_path: Path, url: str, between: str) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        store = agent.attachments
        free = await store.add(PNG)
        said = Draft("ana", "message", {"text": "Look.", "attachments": [free.to_json()]})
        database: Any = store._database
        find = database.find

        async def with_something_between(*given: Any) -> Any:
            database.find = find  # the rest goes as always
            if between == "turn":
                await agent.thread("t").converse("Look.", attachments=[free])
            elif between == "message":
                await ConversationLog(database).append(None, [said], thread="t", turn_id="1")
            found = await find(*given)
            if between == "content":  # the message comes after the last look
                await store.keep([Loaded(free, PNG)])
            return found

        database.find = with_something_between
        assert (await store.drop_unreferenced(held=0)) == ((free.sha256,) if between == "content" else ())
        assert (await store.open(free)).read() == PNG
    assert whole(url) == [PNG]


async def test_missing_or_changed_content_is_named_until_it_is_attached_again(tmp_path: Path, url: str) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        thread = agent.thread("t")
        await thread.converse("Look.", attachments=[PNG])
        [picture] = agent.attachments.of((await thread.history())[0])
        for data in (None, PNG[:-1], OTHER_PNG[: len(PNG)]):
            put(url, str(picture.sha256), data)
            place = url.removeprefix("file://")
            with pytest.raises(
                AttachmentMissing, match=f"is gone, or is not what was stored; copy its file to '{place}"
            ):
                await agent.attachments.read(picture)
            assert (await thread.converse("And now?")).text == "Fine."
            await thread.converse("Look again.", attachments=[PNG])
            assert await agent.attachments.read(picture) == PNG


async def test_a_backup_and_an_export_have_the_content(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t").converse("Look.", attachments=[PNG, PDF])
        backup = await agent.upkeep.back_up(tmp_path / "backup")
        assert backup.missing == ()
        assert (await agent.upkeep.export("t", tmp_path / "t.jsonl")).missing == ()
        await agent.upkeep.remove("t")
        assert objects(url) == {}
        await agent.upkeep.import_thread(tmp_path / "t.jsonl")
    assert whole(url) == sorted([PNG, PDF])
    monkeypatch.delenv("WORLDAGENT_ATTACHMENTS_URL")
    async with scripted_agent(tmp_path / "backup", answering()) as agent:  # the copy is a home of its own
        for attachment in agent.attachments.of((await agent.thread("t").history())[0]):
            await agent.attachments.read(attachment)


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    "point", ["before the content", "before the message", "before the answer", "half set aside", "set aside"]
)
async def test_content_of_a_killed_process_is_complete_or_removed(tmp_path: Path, s3: str, point: str) -> None:
    await killed(await start_script(call_of(stop_at, tmp_path / "home", point)))
    assert wrong_names(s3) == []
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm) as agent:
        thread = agent.thread("t")
        if point == "before the answer":
            assert (await thread.resume()).text == "Fine."
            assert lm.calls[0].media == (("image", data_uri(PNG)),)
            assert await agent.attachments.drop_unreferenced(unfinished=0) == ()
            assert whole(s3) == [PNG]
        else:
            assert await thread.history() == ()
            await agent.attachments.drop_unreferenced(unfinished=0)
            assert objects(s3) == {}


async def test_what_a_killed_process_had_set_aside_is_still_read_and_comes_back(tmp_path: Path, s3: str) -> None:
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread("t").converse("Look.", attachments=[PNG])
        [picture] = agent.attachments.of((await agent.thread("t").history())[0])
        other = ObjectPieces(s3)  # of a process that is then killed
        await asyncio.to_thread(other.set_aside, str(picture.sha256))
        assert await agent.attachments.read(picture) == PNG
        assert await agent.attachments.drop_unreferenced() == (), "the other process may still run"
        assert len(objects(s3)) == 1
        await agent.thread("u").converse("Look.", attachments=[picture])
        assert await agent.attachments.drop_unreferenced(unfinished=0) == ()
    assert whole(s3) == [PNG]


async def test_processes_that_attach_and_remove_the_same_content_at_once_lose_none_of_it(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    scripts = [call_of(attach_and_remove, tmp_path / name, name, 6) for name in ("a", "b", "c")]
    await asyncio.gather(*(run_script(script, limit=100) for script in scripts))
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm) as agent:
        for state in await agent.threads():
            await agent.thread(state.thread).converse("And now?")
    assert [len(call.media) for call in lm.calls] == [1] * 9
    assert whole(s3) == [PNG]


@pytest.mark.requirement("T5")
async def test_processes_that_are_killed_leave_no_message_without_its_content(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    names = ("a", "b", "c")
    running = [await start_script(call_of(attach_and_remove, tmp_path / name, name, 0)) for name in names]
    await asyncio.gather(*(killed(process, limit=100) for process in running))
    assert wrong_names(s3) == []
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        referred = set[str]()
        for state in await agent.threads():
            for message in await agent.thread(state.thread).history():
                for attachment in agent.attachments.of(message):
                    await agent.attachments.read(attachment)
                    referred.add(str(attachment.sha256))
        await agent.attachments.drop_unreferenced(held=0, unfinished=0)
        assert objects(s3).keys() == referred


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("/shared/attachments", "must name a bucket or a folder"),
        ("s3://", "must name a bucket or a folder"),
        ("simplecache::s3://agents/kept", "must be a single url"),
        ("file://shared/attachments", "must name an absolute folder"),
        ("s3://ana:hush-hush@agents/a\nb", "contains control characters"),
        (7, "must be a string, got int"),
    ],
)
def test_a_url_that_cannot_be_one_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the attachments' url {problem}; write it as s3://") as told:
        Storage(attachments_url=given)
    assert "hush" not in str(told.value)
    if isinstance(given, str):
        with pytest.raises(SettingsInvalid, match=f"attachments_url: the attachments' url {problem}"):
            Settings(attachments_url=given)


async def test_a_url_that_cannot_be_opened_is_refused_when_the_agent_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(kind: type[Exception], problem: str, url: str) -> None:
        with pytest.raises(kind, match=problem) as told:
            await scripted_agent(tmp_path, answering(), settings={"attachments_url": url}).start()
        assert told.value.__context__ is None, "the library's error can show the url"

    await refused(InvalidArgument, "fsspec has no filesystem for moon://; write it", "moon://sea/kept")
    await refused(MissingExtra, "the filesystem of gdrive:// is not installed; install its package", "gdrive://a/kept")
    monkeypatch.setattr("worldagent.memory.attachments.objects.find_spec", lambda name: None)
    await refused(MissingExtra, "need the extra `objects`; pip install 'worldagent", "memory://a/kept")
    assert not any(tmp_path.iterdir())


async def test_a_store_that_fails_fails_the_turn_before_its_message(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(problem: str, url: str) -> None:
        lm = answering()
        async with scripted_agent(tmp_path / "home", lm, settings={"attachments_url": url}) as agent:
            with pytest.raises(StorageUnavailable, match=problem) as told:
                await agent.thread("t").converse("Look.", attachments=[PNG])
            assert told.value.__context__ is None
            assert await agent.thread("t").history() == ()
        assert lm.calls == []
        assert not any(secret in str(told.value) for secret in ("hush-hush", "secret-of-a-test"))

    await refused("attachments at 's3://nowhere/kept' cannot be read or written .* access to it", "s3://nowhere/kept")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    register_s3()
    await refused("attachments at 's3://agents/kept' cannot be read or written", "s3://ana:hush-hush@agents/kept")
