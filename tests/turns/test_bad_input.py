"""Bad input and broken surroundings: a typed error that names the thing and ends with the remedy, nothing half-done."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dspy.utils.callback import BaseCallback

from support.agents import answering, scripted_agent
from support.openai_stub import openai_stub
from support.processes import run_script
from worldagent import Role, Settings, Storage, Tier, WorldAgent
from worldagent.core import errors
from worldagent.testing import ScriptedLM

MESSAGE = "zebra-canary-message"


def check(caught: pytest.ExceptionInfo[Any]) -> errors.WorldAgentError:
    """What every error of ours has: a code, a remedy at its end, nothing of the message and no foreign exception."""
    error: errors.WorldAgentError = caught.value
    assert str(error).endswith(error.remedy)
    assert error.code != "error"
    assert "zebra" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
    return error


def contents(home: Path) -> dict[str, Any]:
    """Every table of the databases of a home, lock files and owners apart."""
    found: dict[str, Any] = {}
    for file in sorted(home.glob("*.db")):
        connection = sqlite3.connect(file)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table != "wa_epoch":
                found[f"{file.name}/{table}"] = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
        connection.close()
    return found


# --- ids and messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", " ", 3, "a\nb", "\x00", "x" * 201, "\ud800", ["a"], b"a"])
def test_a_workspace_or_an_id_that_is_none_is_named(value: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"workspace .* is not an id; give workspace 1 to 200"):
        WorldAgent(value, lm=answering())
    agent = WorldAgent("novel", lm=answering())
    with pytest.raises(errors.InvalidArgument, match=r"thread .*; give thread"):
        agent.thread(value)
    if value is not None:
        for name in ("account", "channel"):
            with pytest.raises(errors.InvalidArgument, match=rf"{name} .*; give {name}"):
                agent.thread("t", **{name: value})


@pytest.mark.parametrize("text", ["", "  \n", None, 3, b"Hi", "half \ud83d a pair"])
async def test_a_message_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, text: Any) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        before = contents(tmp_path)
        for say in (agent.thread("t").converse, agent.thread("t").stream):
            with pytest.raises(errors.InvalidArgument, match="`text`"):
                await say(text)  # type: ignore[misc]  # `stream` raises before it could be awaited
        assert contents(tmp_path) == before
        assert not (tmp_path / "locks").exists()
    assert lm.calls == []


@pytest.mark.parametrize("limit", [0, 1001, -1, "3", None, True])
async def test_a_page_of_the_history_has_bounds(tmp_path: Path, limit: Any) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises(errors.InvalidArgument, match=r"limit .*; page with `before`"):
            await agent.thread("t").history(limit=limit)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lm", "error", "says"),
    [
        ("nosuch/model", errors.ModelNotConfigured, r"'nosuch/model'.*dspy\.LM"),
        ("openai/gpt-4o", errors.ModelNotConfigured, r"'openai/gpt-4o' has no API key; set .*OPENAI_API_KEY"),
        ("", errors.InvalidArgument, r"`lm` must not be empty; pass"),
        (3, errors.InvalidArgument, r"`lm` must be .* got 'int'; pass"),
        ("local:/no/such/file.gguf", errors.ModelNotConfigured, r"file\.gguf.*; run"),
        (ScriptedLM([]).copy(callbacks=[BaseCallback()]), errors.InvalidArgument, r"callbacks.*; pass one without"),
    ],
)
async def test_a_model_that_cannot_be_used_is_named_at_the_start_and_no_home_is_made(
    tmp_path: Path, lm: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        await scripted_agent(tmp_path / "home", lm).start()
    check(caught)
    assert not (tmp_path / "home").exists()


FAILING: list[tuple[str, type[errors.WorldAgentError], str]] = [
    ("auth-401", errors.ModelNotConfigured, "set a key"),
    ("forbidden-403", errors.ModelNotConfigured, "set a key"),
    ("missing-404", errors.ModelNotConfigured, "check the model's name"),
    ("echo-400", errors.ModelRefused, "check that the model accepts"),
    ("context-400", errors.ContextExceeded, "shorten the message"),
    ("limited-429", errors.ModelRateLimited, "wait 7 seconds and try again"),
    ("down-500", errors.ModelUnavailable, "try again later"),
]


def hosted(home: Path, url: str, model: str) -> WorldAgent:
    settings = Settings(api_base=url, model_attempts=1, model_backoff=0)
    return WorldAgent("novel", lm=f"openai/{model}", storage=Storage(home=home), settings=settings)


@pytest.mark.parametrize(("model", "error", "remedy"), FAILING)
async def test_a_service_that_refuses_fails_the_turn_and_the_message_stays_in_the_log(
    tmp_path: Path, model: str, error: type[Exception], remedy: str
) -> None:
    async with openai_stub() as stub:
        async with hosted(tmp_path, stub.url, model) as agent:
            with pytest.raises(error, match=rf"'openai/{model}'.*{remedy}") as caught:
                await agent.thread("t").converse(MESSAGE)
            assert check(caught).turn_id is not None
            assert getattr(caught.value, "retry_after", 7.0) == 7.0
            async with agent.thread("t").stream(MESSAGE) as stream:
                with pytest.raises(error):
                    _ = [event async for event in stream]
            assert [message.kind for message in await agent.thread("t").history()] == ["message"] * 2
        async with hosted(tmp_path, stub.url, "answer") as agent:
            assert (await agent.thread("t").converse("Hi")).text == "Paris."


async def test_a_service_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    async with hosted(tmp_path, url, "answer") as agent:
        with pytest.raises(errors.ModelUnavailable, match=r"'openai/answer'.*check the service") as caught:
            await agent.thread("t").converse(MESSAGE)
    assert check(caught).retryable


@asynccontextmanager
async def saying(data: bytes) -> AsyncGenerator[str]:
    """A server that answers every request with `data` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def http(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


GARBAGE = {
    "no JSON": http(b"<html>zebra</html>"),
    "no choices": http(b'{"zebra": 1}'),
    "null choices": http(b'{"choices": null}'),
    "empty choices": http(b'{"id": "x", "choices": []}'),
    "a list": http(b"[1, 2]"),
    "a page": http(b"<html>zebra</html>", kind="text/html"),
    "nothing": http(b""),
    "not UTF-8": http(b'{"choices": "\xff\xfe"}'),
    "cut off": http(b'{"choices": [{"mess')[:-3],
    "no HTTP": b"zebra zebra zebra\r\n\r\n",
    "hangs up": b"",
    "a gateway's page": http(b"<html>zebra</html>", kind="text/html", status="502 Bad Gateway"),
    "broken events": http(b"data: {zebra\n\ndata: [DONE]\n\n", kind="text/event-stream"),
}


async def follow(agent: WorldAgent) -> list[Any]:
    async with agent.thread("t").stream(MESSAGE) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_service_that_answers_garbage_is_a_typed_error_without_the_garbage(
    tmp_path: Path, garbage: str, streamed: bool
) -> None:
    async with saying(GARBAGE[garbage]) as url, hosted(tmp_path, url, "answer") as agent:
        with pytest.raises((errors.ModelUnavailable, errors.OutputInvalid, errors.ModelRefused)) as caught:
            await (follow(agent) if streamed else agent.thread("t").converse(MESSAGE))
        check(caught)
        assert [message.kind for message in await agent.thread("t").history()] == ["message"]


@pytest.mark.local
async def test_a_prompt_over_the_embedded_models_context_names_both_sizes(tmp_path: Path) -> None:
    async with WorldAgent("novel", lm="local", storage=Storage(home=tmp_path), settings=Settings()) as agent:
        with pytest.raises(
            errors.ContextExceeded, match=r"has \d+ tokens and .*'local' accepts \d+.*shorten"
        ) as caught:
            await agent.thread("t").converse("zebra " * 6000)
        check(caught)
        assert "Paris" in (await agent.thread("new").converse("What is the capital of France?")).text


# --- homes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["/proc/worldagent", "/sys/worldagent", "/proc/self/worldagent/deeper"])
async def test_a_home_that_cannot_be_written_is_named(home: str) -> None:
    with pytest.raises(errors.StorageUnavailable, match=rf"'{home}.*; make its folder and files writable") as caught:
        await scripted_agent(Path(home), answering()).start()
    check(caught)


async def test_a_file_where_the_home_should_be_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(errors.StorageUnavailable, match=r"file.*; .*use another home") as caught:
            await scripted_agent(home, answering()).start()
        check(caught)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("home", "says"), [("a\0b", "NUL character"), ("~no-such-user-here/x", "user that this")]
)
async def test_a_home_that_names_no_folder_is_refused(home: str, says: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=says):
        await WorldAgent("novel", lm=answering(), storage=Storage(home=Path(home))).start()


async def filled(home: Path) -> None:
    """Fill a home with a turn and a role, and leave no log beside the databases."""
    async with scripted_agent(home, answering()) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "house words"))
        await agent.thread("t").converse("Hi")


@pytest.mark.parametrize("name", ["agent.db", "roles.db"])
@pytest.mark.parametrize("damage", ["text", "cut", "zeros", "folder"])
async def test_a_database_that_is_none_is_named_and_both_are_left_as_they_were(
    tmp_path: Path, name: str, damage: str
) -> None:
    await filled(tmp_path)
    file = tmp_path / name
    match damage:
        case "text":
            file.write_text("This is a diary. " * 500)
        case "cut":
            file.write_bytes(file.read_bytes()[:5000])
        case "zeros":
            file.write_bytes(bytes(20000))
        case _:
            file.unlink()
            file.mkdir()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()}
    with pytest.raises(
        (errors.StorageInvalid, errors.StorageUnavailable), match=rf"{name}.*use another home"
    ) as caught:
        await scripted_agent(tmp_path, answering()).start()
    check(caught)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()} == before


@pytest.mark.parametrize(("name", "part"), [("agent.db", "epochs"), ("agent.db", "conversation"), ("roles.db", "role")])
async def test_a_newer_schema_of_any_part_is_refused_naming_both_versions_and_changes_nothing(
    tmp_path: Path, name: str, part: str
) -> None:
    await filled(tmp_path)
    connection = sqlite3.connect(tmp_path / name)
    with connection:
        [(known,)] = connection.execute("SELECT version FROM wa_schema WHERE name = ?", (part,))
        connection.execute("UPDATE wa_schema SET version = ? WHERE name = ?", (known + 7, part))
    connection.close()
    before = contents(tmp_path)
    told = rf"{name}' has version {known + 7} of '{part}', but this package knows only {known}; install"
    with pytest.raises(errors.SchemaTooNew, match=told) as caught:
        await scripted_agent(tmp_path, answering()).start()
    check(caught)
    assert contents(tmp_path) == before


# --- what changes while the agent runs --------------------------------------------------------------------------------

BLOBS = {
    "not msgpack": b"\xc1\xc1zebra",
    "a number": b"\x07",
    "a text": b"\xa5zebra",
    "an empty map": b"\x80",
    "nothing": b"",
    "cut": None,
}


@pytest.mark.parametrize("blob", BLOBS)
async def test_a_checkpoint_that_cannot_be_read_is_named_and_other_threads_go_on(tmp_path: Path, blob: str) -> None:
    await filled(tmp_path)
    connection = sqlite3.connect(tmp_path / "agent.db")
    with connection:
        if BLOBS[blob] is None:
            connection.execute("UPDATE checkpoints SET checkpoint = substr(checkpoint, 1, length(checkpoint) / 2)")
        else:
            connection.execute("UPDATE checkpoints SET checkpoint = ?", (BLOBS[blob],))
    connection.close()
    before = contents(tmp_path)
    async with scripted_agent(tmp_path, answering()) as agent:
        for use in (agent.thread("t").history, lambda: agent.thread("t").converse(MESSAGE)):
            with pytest.raises(errors.StorageInvalid, match=r"thread 'novel/t'.*agent\.db'.*another thread") as caught:
                await use()
            check(caught)
        assert contents(tmp_path) == before
        assert (await agent.thread("u").converse("Hi")).text == "Fine."


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE checkpoints", "ALTER TABLE checkpoints RENAME COLUMN type TO kind", "DROP TABLE wa_message"],
)
async def test_tables_that_somebody_changed_are_a_typed_error(tmp_path: Path, change: str) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.thread("t").converse("Hi")
        connection = sqlite3.connect(tmp_path / "agent.db")
        with connection:
            connection.execute(change)
        connection.close()
        with pytest.raises((errors.StorageInvalid, errors.StorageUnavailable)) as caught:
            await agent.thread("t").converse(MESSAGE)
        assert "zebra" not in str(caught.value)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_database_that_is_taken_away_fails_the_next_turn_before_any_model_call(
    tmp_path: Path, how: str
) -> None:
    home, lm = tmp_path / "home", answering()
    await filled(home)
    shutil.copytree(home, tmp_path / "copy")
    async with scripted_agent(home, lm) as agent:
        for file in home.glob("*.db*"):
            file.unlink()
        if how == "replaced":
            shutil.copytree(tmp_path / "copy", home, dirs_exist_ok=True)
        for use in (
            lambda: agent.thread("t").converse(MESSAGE),
            lambda: agent.roles.put(Tier.WORKSPACE, Role("x", "y")),
        ):
            with pytest.raises(errors.StorageUnavailable, match=r"the file that was opened; put it back") as caught:
                await use()
            check(caught)
    assert lm.calls == []
    async with scripted_agent(home, answering()) as agent:
        assert len(await agent.thread("t").history()) == (2 if how == "replaced" else 0)
        assert (await agent.thread("t").converse("Hi")).text == "Fine."


FULL = """
import asyncio, resource, signal, sqlite3, sys
from pathlib import Path
from support.agents import CRITIC, answering, scripted_agent
from worldagent.core.errors import StorageUnavailable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
home = Path(sys.argv[1])

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    async with scripted_agent(home, answering()) as agent:
        thread = agent.thread("t")
        for _ in range(3):
            await thread.converse("Hi " * 500)
        # Room for less and less of a turn, so that it ends anywhere in it.
        size, failed = (home / "agent.db-wal").stat().st_size, 0
        for room in range(0, 60000, 1500):
            limit(size + room)
            try:
                await thread.converse("Hi " * 500)
            except StorageUnavailable as error:
                assert "agent.db" in str(error) and error.remedy, error
                failed += 1
            limit(resource.RLIM_INFINITY)
            outside = sqlite3.connect(home / "agent.db", timeout=0, isolation_level=None)
            outside.execute("BEGIN IMMEDIATE")  # nobody holds a transaction
            outside.execute("ROLLBACK")
            outside.close()
            size = (home / "agent.db-wal").stat().st_size
        assert failed > 5, failed
        assert (await thread.converse("At last")).text == "Fine."
        said = [message.kind for message in await thread.history(limit=1000)]
        assert said[-2:] == ["message", "answer"], said
    print("sound")

asyncio.run(main())
"""


async def test_a_full_disk_fails_turns_and_leaves_nothing_locked_or_broken(tmp_path: Path) -> None:
    assert await run_script(FULL, tmp_path) == "sound\n"
    async with scripted_agent(tmp_path, answering()) as agent:
        assert (await agent.thread("t").converse("Hi")).text == "Fine."
