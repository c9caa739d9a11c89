"""Signals that come while a command still loads: the exit code of later ones, and JSON where JSON is asked for."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from support.command_line import APP, BOUND, Done, environment

pytestmark = [pytest.mark.requirement("T5"), pytest.mark.timeout(200)]


async def signalled(home: Path, number: int, module: str, *words: str) -> Done:
    """A command that gets a signal at the moment when it begins to load a module."""
    script = (
        f"import os, sys; sys.argv = {['worldagent', *words]!r}\n"
        "from worldagent.hosts.cli import main\n"
        f"def hook(event, given):\n    if event == 'import' and given[0] == {module!r}:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "sys.addaudithook(hook); main()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", script, env=environment(home), cwd=home, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    out, told = await asyncio.wait_for(process.communicate(b""), BOUND)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), told.decode())


@pytest.mark.parametrize(
    ("number", "code", "name"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ("ask", "Hello", "--events", *APP)),
        ("worldagent.hosts.cli._session", ("task", "buy", "-p", "what=hat", "--json", *APP)),
        ("support.jobs", ("resume", "main", "--json", *APP)),
        ("dspy", ("task", "buy", "-p", "what=hat", "--json", "--lm", "openai/answer")),
    ],
)
async def test_a_signal_while_a_command_loads_is_told_as_json_with_its_exit_code(
    tmp_path: Path, number: int, code: int, name: str, module: str, words: tuple[str, ...]
) -> None:
    done = await signalled(tmp_path, number, module, *words)
    assert (done.code, done.told) == (code, "")
    error = json.loads(done.out)["error"]
    assert error["code"] == name
    assert set(error) == {"code", "message", "remedy", "retryable", "turn_id"}
    assert error["remedy"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_to_a_person_it_says_nothing(tmp_path: Path, number: int, code: int) -> None:
    assert await signalled(tmp_path, number, "typer", "ask", "--", "--json") == Done(code, "", "")
