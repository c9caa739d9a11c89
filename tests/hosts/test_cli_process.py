"""The command line as a process of its own: what it loads, how it streams to a terminal, how it is interrupted."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support import openai_stub as stubs
from support.house import ROOT
from support.openai_stub import OpenAIStub, openai_stub
from support.terminal import Terminal as RealTerminal
from worldagent.core.events import TextDelta, TextReplaced
from worldagent.hosts.cli.output import Output

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli")
BOUND = 90  # seconds


def environment(home: Path, **more: str) -> dict[str, str]:
    given = {"PYTHONPATH": str(ROOT / ".dev"), "WORLDAGENT_HOME": str(home), "OPENAI_API_KEY": "key-of-a-test"}
    return os.environ | given | more


def python(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-c", script]
    return subprocess.run(
        words, env=environment(home), cwd=home, capture_output=True, text=True, timeout=BOUND, check=False
    )


async def until(seen: Callable[[], bool], master: int, shown: bytearray) -> None:
    """Read the terminal until `seen` says so."""
    loop, more = asyncio.get_running_loop(), asyncio.Event()

    def readable() -> None:
        try:
            shown.extend(os.read(master, 4096))
        except OSError:  # the other end is closed
            loop.remove_reader(master)
        more.set()

    loop.add_reader(master, readable)
    try:
        async with asyncio.timeout(BOUND):
            while not seen():
                await more.wait()
                more.clear()
    finally:
        loop.remove_reader(master)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["ask", "--help"],
        ["chat", "--help"],
        ["task", "--help"],
        ["roles", "get", "--help"],
        ["role-host", "--help"],
        ["serve", "--help"],
        ["ps", "--help"],
    ],
)
def test_help_loads_neither_a_model_library_nor_the_agent(tmp_path: Path, words: list[str]) -> None:
    done = python(
        f"import atexit, json, sys; sys.argv = ['worldagent', *{words!r}]\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from worldagent.hosts.cli import main; main()",
        tmp_path,
    )
    assert done.returncode == 0
    loaded = set(json.loads(done.stderr))
    assert loaded.isdisjoint(
        {"dspy", "langgraph", "litellm", "prompt_toolkit", "pydantic_settings", "worldagent.core", "worldagent.agent"}
    )


@pytest.mark.parametrize(
    ("words", "mcp"), [(["roles", "list"], False), (["role-host", "--stdio"], True), (["ps"], False)]
)
def test_what_needs_no_model_loads_no_model_library(tmp_path: Path, words: list[str], mcp: bool) -> None:
    done = python(
        f"import atexit, json, sys; sys.argv = ['worldagent', *{words!r}]\n"
        "atexit.register(lambda: print('', json.dumps(sorted(sys.modules)), sep='\\n', file=sys.stderr))\n"
        "from worldagent.hosts.cli import main; main()",
        tmp_path,
    )
    assert done.returncode == 0
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "worldagent.role_resolution" in loaded
    assert ("mcp" in loaded) is mcp
    assert loaded.isdisjoint({"dspy", "langchain_core", "langgraph", "litellm", "worldagent.graphs"})


@pytest.mark.parametrize("words", [["--help"], ["role-host", "--stdio"], ["serve", "--stdio", "--lm", "openai/x"]])
def test_its_processes_collect_garbage_less_often(tmp_path: Path, words: list[str]) -> None:
    done = python(
        f"import atexit, gc, sys; sys.argv = ['worldagent', *{words!r}]\n"
        "atexit.register(lambda: print('', *gc.get_threshold(), gc.isenabled(), sep=' ', file=sys.stderr))\n"
        "from worldagent.hosts.cli import main; main()",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == " 50000 10 10 True"


@pytest.mark.parametrize("missing", ["typer", "rich", "prompt_toolkit"])
def test_without_its_extra_it_names_the_extra(tmp_path: Path, missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from worldagent.hosts.cli import main; main()"
    done = python(script, tmp_path)
    assert done.returncode == 2
    assert "pip install 'worldagent[cli]'" in done.stderr


async def test_an_answer_shows_on_a_terminal_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def halting(self: OpenAIStub, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for text in ("[[ ## reply ## ]]\nThe lamp is lit, \x1b[2J", "and the ships are home.\n\n[[ ## completed ## ]]"):
            delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [delta]})
            await writer.drain()
            await go_on.wait()
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [end]})
        stubs._raw_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    monkeypatch.setattr(OpenAIStub, "_stream", halting)
    master, slave = pty.openpty()
    shown = bytearray()
    async with openai_stub() as stub:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "ask", "Hello", "--lm", "openai/answer"),
            env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=slave,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(slave)
        try:
            await until(lambda: b"The lamp is lit" in shown, master, shown)
            assert b"ships" not in shown
            go_on.set()
            await until(lambda: shown.endswith(b"\n"), master, shown)
            _, told = await asyncio.wait_for(process.communicate(), BOUND)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(master)
    assert (process.returncode, told) == (0, b"")
    assert shown == b"The lamp is lit, [2Jand the ships are home.\r\n"  # the escape character is gone


async def test_an_interrupt_cancels_the_turn_and_exits_with_130(tmp_path: Path) -> None:
    async with openai_stub() as stub:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "ask", "Hello", "--lm", "openai/slow", "--json", "--role", SECRET),
            env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await asyncio.wait_for(stub.arrived.wait(), BOUND)
            process.send_signal(signal.SIGINT)
            out, told = await asyncio.wait_for(process.communicate(), BOUND)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.wait_for(stub.gone.wait(), BOUND)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert told == b""


@pytest.mark.parametrize("how", ["open pipe", "no handle", "not to be read", "no data"])
async def test_ask_answers_whatever_standard_input_it_inherits(tmp_path: Path, how: str) -> None:
    reading, writing = os.pipe()  # nothing is ever written to it
    redirected = {"open pipe": "", "no handle": "<&-", "not to be read": "0>/dev/null", "no data": "</dev/null"}[how]
    async with openai_stub() as stub:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$@" {redirected}', "sh", *COMMAND, "ask", "Hello", "--lm", "openai/answer"),
            env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url),
            stdin=reading,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(reading)
        try:
            out, told = await asyncio.wait_for(process.communicate(), BOUND)
        finally:
            os.close(writing)
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, out) == (0, b"Paris.\n"), told.decode()
    assert (b"no data came within 5 s" in told) is (how == "open pipe")


async def test_ask_waits_for_a_slow_program_that_gives_the_message(tmp_path: Path) -> None:
    async with openai_stub() as stub:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "ask", "Sum up:", "--lm", "openai/answer"),
            env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdin is not None
            process.stdin.write(b"first ")
            await process.stdin.drain()
            out, told = await asyncio.wait_for(process.communicate(b"and last\n"), BOUND)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, out, told) == (0, b"Paris.\n", b"")
        assert "Sum up:\\n\\nfirst and last" in json.dumps(stub.requests[-1])


async def test_ask_at_a_terminal_without_a_message_says_how(tmp_path: Path) -> None:
    async with RealTerminal((*COMMAND, "ask"), env=environment(tmp_path)) as terminal:
        assert await asyncio.wait_for(terminal.process.wait(), BOUND) == 2
    text = terminal.raw.decode()
    assert "there is no message" in text
    assert "worldagent ask 'TEXT'" in text


@pytest.mark.local
def test_ask_answers_on_the_embedded_model_and_says_that_it_is_tiny(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "ask", "What is the capital of France?"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "It is tiny and only shows that everything works" in done.stderr
    assert "WORLDAGENT_LM" in done.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("replacement", "shown"),
    [
        ("Not in Spain.", "Perhaps in\n[the answer so far is withdrawn]\nNot in Spain. No."),
        ("", "Perhaps in\n[the answer so far is withdrawn]\n No."),
        ("Perhaps in", "Perhaps in No."),
    ],
)
def test_an_answer_that_does_not_stand_is_withdrawn_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, replacement: str, shown: str
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output = Output("text", verbose=False)
    common: dict[str, Any] = {"turn_id": "turn_1", "seq": 1, "at": datetime.now(UTC)}
    for event in (
        TextDelta(text="Perhaps in", **common),
        TextReplaced(text=replacement, **common),
        TextDelta(text=" No.", **common),
    ):
        output.event(event)
    assert terminal.getvalue() == shown
