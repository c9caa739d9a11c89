"""The command line as a process of its own, as people run it."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.main import get_command
from typer.testing import CliRunner, Result

from support.forks import start
from support.openai_stub import OpenAIStub, openai_stub
from support.processes import clean_environment, ending, next_line
from worldagent.hosts.cli.app import app

COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli")
APP = ("--app", "support.hat_shop:agent")
BOUND = 90  # seconds


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    code: int
    out: str
    told: str


def environment(home: Path, **more: str) -> dict[str, str]:
    return clean_environment(WORLDAGENT_HOME=str(home), OPENAI_API_KEY="key-of-a-test") | more


async def command(home: Path, *words: str, stdin: bytes = b"", **more: str) -> Done:
    """Run a command to its end."""
    async with started(home, *words, **more) as process:
        out, told = await asyncio.wait_for(process.communicate(stdin), BOUND)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), told.decode())


@asynccontextmanager
async def started(home: Path, *words: str, **more: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a command; it is killed at the end of the block if it still runs."""
    home.mkdir(exist_ok=True)
    process = await start((*COMMAND, *words), env=environment(home, **more), cwd=home)
    async with ending(process):
        yield process


def options_of(*words: str) -> list[str]:
    """The options of a command, such as `--role-host`, each under its first name."""
    found: Any = get_command(app)
    for word in words:
        found = found.commands[word]
    return [each.opts[0] for each in found.params if each.opts[0].startswith("-")]


Run = Callable[..., Awaitable[Result]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that commands in this process take."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("WORLDAGENT_HOME", str(folder))
    monkeypatch.setenv("COLUMNS", "200")
    # A command leaves the embedded model to its process, and this one runs other tests.
    monkeypatch.setattr("worldagent.hosts.cli.agents._begin_loading", lambda lm, identity: None)
    return folder


@pytest.fixture
def run(home: Path) -> Run:
    """Run a command in this process, in a thread: it makes a loop of its own."""
    return lambda *words: asyncio.to_thread(CliRunner().invoke, app, list(words))


def doctor(*words: str | Path, **more: str) -> Result:
    """Run `doctor` on a terminal of 80 columns without colour."""
    return CliRunner().invoke(app, ["doctor", *map(str, words)], env={"COLUMNS": "80", "TERM": "dumb"} | more)


async def as_json(run: Run, *words: str, code: int = 0, **more: str) -> Any:
    """What a command gives with `--json`."""
    result = await run(*words, "--json", **more)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


async def refusal(run: Run, *words: str, code: int = 2, **more: str) -> Any:
    """The error of a command, as `--json` gives it."""
    return (await as_json(run, *words, code=code, **more))["error"]


@pytest_asyncio.fixture
async def stub() -> AsyncGenerator[OpenAIStub]:
    """A chat server on this machine; it says `Paris.` where a test has no other answers for it."""
    async with openai_stub() as running:
        yield running


@pytest.fixture(name="run")
def run_on_stub(stub: OpenAIStub, tmp_path: Path) -> Run:
    """Run a command on the stub, in a thread: the stub needs this loop, and the command makes its own."""
    settings = {
        "WORLDAGENT_API_BASE": stub.url,
        "WORLDAGENT_MODEL_TOOLS": "json",
        "WORLDAGENT_HOME": str(tmp_path / "home"),
        "WORLDAGENT_MODEL_ATTEMPTS": "1",
        "WORLDAGENT_LM": "openai/answer",
        "OPENAI_API_KEY": "key-of-a-test",
        "COLUMNS": "200",
        "TERM": "dumb",
    }

    async def command(*words: str, stdin: bytes = b"", **more: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, list(words), input=stdin, env=settings | more)

    return command


LOOPBACK = "127.0.0.1:0"
MAKE = ("--app", "support.sidecar_app:make")
HTTP = ("serve", "--http", LOOPBACK)


@dataclass
class Running:
    """A sidecar over HTTP."""

    process: asyncio.subprocess.Process
    url: str
    home: Path

    async def ended(self, number: int = signal.SIGTERM) -> Done:
        """Ask it to end, and give how it did."""
        self.process.send_signal(number)
        out, told = await asyncio.wait_for(self.process.communicate(), BOUND)
        assert self.process.returncode is not None
        return Done(self.process.returncode, out.decode(), told.decode())


@asynccontextmanager
async def serving(home: Path, *words: str, http: str = LOOPBACK, **env: str) -> AsyncGenerator[Running]:
    """Run one, and wait until it tells its address; `http` is where it listens."""
    async with started(home, "serve", "--http", http, *words, **env) as process:
        url = await next_line(process, BOUND)
        if not url.startswith("http"):
            _, told = await asyncio.wait_for(process.communicate(), BOUND)
            raise AssertionError(f"it did not start: {url} {told.decode()}")
        yield Running(process, url, home)
