"""Signals that come while a command still loads: the exit code of later ones, and JSON where JSON is asked for."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, BOUND, Done, environment

pytestmark = [pytest.mark.requirement("T5"), pytest.mark.timeout(200)]


PIPES: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
INTERRUPTED = "error: interrupted; the running work is cancelled\nremedy: run the command again\n"
SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
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
        **PIPES,
        env=environment(home),
        cwd=home,
    )
    return await ended(process)


async def ended(process: asyncio.subprocess.Process) -> Done:
    out, told = await asyncio.wait_for(process.communicate(b""), BOUND)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), told.decode())


TERMINATED, CANCELLED = (signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")


@pytest.mark.parametrize(
    ("given", "module", "words"),
    [
        (CANCELLED, "worldagent.hosts.cli.agents", ("task", "buy", "-p", "what=hat", "--json", *APP)),
        (TERMINATED, "support.agents", ("serve", "--http", "127.0.0.1:0", "--json", *APP)),  # an app prints to stderr
        (CANCELLED, "dspy", ("task", "buy", "-p", "what=hat", "--json", "--lm", "openai/answer")),
    ],
)
async def test_a_signal_while_a_command_loads_is_told_as_json_with_its_exit_code(
    tmp_path: Path, given: tuple[int, int, str], module: str, words: tuple[str, ...]
) -> None:
    number, code, name = given
    done = await signalled(tmp_path, number, f"given[0] == {module!r}", *words)
    assert (done.code, done.told) == (code, "")
    error = json.loads(done.out)["error"]
    assert error["code"] == name
    assert set(error) == {"code", "message", "remedy", "retryable", "turn_id"}
    assert error["remedy"]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
async def test_to_a_person_it_says_nothing_however_early_it_comes(tmp_path: Path, number: int, code: int) -> None:
    assert await signalled(tmp_path, number, FIRST, "serve", "--stdio", *APP) == Done(code, "", "")


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        ("selector_events.BaseSelectorEventLoop._make_self_pipe", ""),
        ("base_events.BaseEventLoop.create_task", INTERRUPTED),
    ],
)
async def test_an_interrupt_just_as_the_command_begins_is_no_traceback(tmp_path: Path, moment: str, told: str) -> None:
    assert await signalled(tmp_path, signal.SIGINT, moment, "role-host", "--stdio") == Done(130, "", told)
