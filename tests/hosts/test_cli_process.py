"""The command line as a process: what it loads, how it streams to a terminal, and what signals do to it."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.chat import Terminal
from support.command_line import APP, BOUND, COMMAND, Done, command, environment, home, started
from support.hat_shop import agent
from support.openai_stub import OpenAIStub
from support.processes import ending
from worldagent.core.events import TextDelta, TextReplaced
from worldagent.hosts.cli import sources
from worldagent.hosts.cli.options import AgentOptions
from worldagent.hosts.cli.output import Output

__all__ = ["home"]  # a fixture

SECRET = "Answer as the keeper of the seventh lighthouse would answer."


def python(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-c", f"{script}\nfrom worldagent.hosts.cli import main; main()"]
    return subprocess.run(
        words, env=environment(home), cwd=home, capture_output=True, text=True, timeout=BOUND, check=False
    )


def loaded(home: Path, *words: str) -> set[str]:
    """The modules that a command has loaded in the end, and its garbage collector's numbers."""
    done = python(
        f"import atexit, gc, json, sys; sys.argv = ['worldagent', *{words!r}]\n"
        "told = lambda: [*sys.modules, str((*gc.get_threshold(), gc.isenabled()))]\n"
        "atexit.register(lambda: print('', json.dumps(told()), sep='\\n', file=sys.stderr))",
        home,
    )
    assert done.returncode == 0, done.stderr
    found = set(json.loads(done.stderr.splitlines()[-1]))
    assert "(50000, 10, 10, True)" in found
    return found


def test_help_loads_neither_a_model_library_nor_the_agent(tmp_path: Path) -> None:
    models = {"dspy", "langgraph", "litellm", "prompt_toolkit", "pydantic_settings"}
    found = loaded(tmp_path, "serve", "--help")  # each help loads all commands
    assert found.isdisjoint({*models, "worldagent.core", "worldagent.agent"})


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["roles", "list"], "role_resolution"),
        (["role-host", "--stdio"], "role_resolution"),
        (["ps"], "memory"),
        (["threads", "show", "t1", "--workspace", "shop"], "memory"),
        (["profiles", "check"], "profiles"),
    ],
)
async def test_what_needs_no_model_loads_no_model_library(home: Path, words: list[str], part: str) -> None:
    async with agent() as shop:
        await shop.thread("t1").converse("Hello")
    found = await asyncio.to_thread(loaded, home, *words)
    assert f"worldagent.{part}" in found
    assert ("mcp" in found) is (words[0] == "role-host")
    assert found.isdisjoint({"dspy", "langchain_core", "langgraph", "litellm", "worldagent.graphs.engine"})


def test_without_its_extra_it_names_the_extra(tmp_path: Path) -> None:
    done = python("import sys; sys.modules['prompt_toolkit'] = None", tmp_path)
    assert done.returncode == 2
    assert "pip install 'worldagent[cli]'" in done.stderr


async def test_an_answer_shows_on_a_terminal_while_it_is_written(tmp_path: Path, stub: OpenAIStub) -> None:
    stub.answers = [("The lamp is lit, \x1b[2J", "and the ships are home.")]
    words = (*COMMAND, "ask", "Hello", "--lm", "openai/answer")
    async with Terminal(words, env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url)) as terminal:
        assert "ships" not in await terminal.shows("The lamp is lit")
        stub.go_on.set()
        assert await terminal.ended() == 0
        await terminal.until(lambda: terminal.raw.endswith(b"\n"))
    assert terminal.raw == b"The lamp is lit, [2Jand the ships are home.\r\n"  # the escape character is gone


async def test_an_interrupt_cancels_the_turn_and_exits_with_130(tmp_path: Path, stub: OpenAIStub) -> None:
    words = ("ask", "Hello", "--lm", "openai/slow", "--json", "--role", SECRET)
    async with started(tmp_path, *words, WORLDAGENT_API_BASE=stub.url) as process:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(stub.arrived.wait(), BOUND)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), BOUND) == 130
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(await process.stdout.read())["error"]["code"] == "interrupted"
        assert await process.stderr.read() == b""
    await asyncio.wait_for(stub.gone.wait(), BOUND)


async def test_ask_answers_where_standard_input_is_closed(tmp_path: Path, stub: OpenAIStub) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "ask", "Hello", "--lm", "openai/answer"),
        env=environment(tmp_path, WORLDAGENT_API_BASE=stub.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with ending(process):
        out, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert (process.returncode, out, told) == (0, b"Paris.\n", b"")


def test_message_awaits_no_open_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()  # nothing is ever written to it
    monkeypatch.setattr(sources, "STDIN_SECONDS", 0.05)
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert sources.message(AgentOptions(), "Hello", Output()) == "Hello"
    assert "no data came within 5 s" in capsys.readouterr().err


@pytest.mark.local
async def test_ask_answers_on_the_embedded_model_and_says_that_it_is_tiny(tmp_path: Path) -> None:
    done = await command(tmp_path, "ask", "What is the capital of France?")
    assert done.code == 0, done.told
    assert "Paris" in done.out
    assert "It is tiny and only shows that everything works" in done.told
    assert "WORLDAGENT_LM" in done.told


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("replacement", "shown"),
    [
        ("Not in Spain.", "Perhaps in\n[the answer so far is withdrawn]\nNot in Spain. No."),
        ("Perhaps in", "Perhaps in No."),
    ],
)
def test_terminal_withdraws_replaced_answer(monkeypatch: pytest.MonkeyPatch, replacement: str, shown: str) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Tty())
    output = Output()
    common: dict[str, Any] = {"turn_id": "turn_1", "seq": 1, "at": datetime.now(UTC)}
    for event in (
        TextDelta(text="Perhaps in", **common),
        TextReplaced(text=replacement, **common),
        TextDelta(text=" No.", **common),
    ):
        output.event(event)
    assert terminal.getvalue() == shown


# --- signals while a command loads ------------------------------------------------------------------------------------


INTERRUPTED = "error: interrupted; the running work is cancelled\nremedy: run the command again\n"
HOOK = """
def hook(event, given):
    if event == "import" and {moment}:
        os.kill(os.getpid(), {number})
sys.addaudithook(hook)
"""
CALL = """
from asyncio import base_events, selector_events
def call(*given, then={moment}, **more):
    {moment} = then
    os.kill(os.getpid(), {number})
    return then(*given, **more)
{moment} = call
"""
FIRST = "given[0].partition('.')[0] not in ('worldagent', '__future__')"
"""The first module that neither Python has loaded by itself nor is ours."""


async def signalled(home: Path, number: int, moment: str, *words: str) -> Done:
    """A command that gets a signal when it loads a module for which `moment` holds, or calls the function `moment`."""
    script = f"import os, sys; sys.argv = {['worldagent', *words]!r}\n"
    script += (HOOK if " " in moment else CALL).format(moment=moment, number=int(number))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", f"{script}from worldagent.hosts.cli import main; main()"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(home),
        cwd=home,
    )
    out, told = await asyncio.wait_for(process.communicate(b""), BOUND)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), told.decode())


TERMINATED, CANCELLED = (signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("given", "module", "words"),
    [
        (CANCELLED, "worldagent.hosts.cli.agents", ("task", "buy", "-p", "what=hat", "--json", *APP)),
        (TERMINATED, "support.agents", ("serve", "--http", "127.0.0.1:0", "--json", *APP)),  # an app prints to stderr
        (CANCELLED, "dspy", ("task", "buy", "-p", "what=hat", "--json", "--lm", "openai/answer")),
    ],
)
async def test_signal_while_a_command_loads_is_reported(
    tmp_path: Path, given: tuple[int, int, str], module: str, words: tuple[str, ...]
) -> None:
    number, code, name = given
    done = await signalled(tmp_path, number, f"given[0] == {module!r}", *words)
    assert (done.code, done.told) == (code, "")
    error = json.loads(done.out)["error"]
    assert error["code"] == name
    assert set(error) == {"code", "message", "remedy", "retryable", "turn_id"}
    assert error["remedy"]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_the_earliest_signal_prints_nothing(tmp_path: Path, number: int, code: int) -> None:
    assert await signalled(tmp_path, number, FIRST, "serve", "--stdio", *APP) == Done(code, "", "")


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("moment", "told"),
    [
        ("selector_events.BaseSelectorEventLoop._make_self_pipe", ""),
        ("base_events.BaseEventLoop.create_task", INTERRUPTED),
    ],
)
async def test_an_interrupt_as_the_command_begins_prints_no_traceback(tmp_path: Path, moment: str, told: str) -> None:
    assert await signalled(tmp_path, signal.SIGINT, moment, "role-host", "--stdio") == Done(130, "", told)
