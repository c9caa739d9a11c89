"""The example clients of a sidecar: how they are started and typed into, a sidecar for them, and a wire that breaks."""

import asyncio
import json
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from support import forks
from support.example_hosts import NODE, Conversation
from support.house import ROOT
from support.processes import clean_environment, ending
from worldagent.hosts.service.arguments import SurfaceArguments
from worldagent.hosts.sidecar.tools import TOOLS

EXAMPLES = ROOT / "examples"
RUST_CHAT = EXAMPLES / "sidecar-rust"
TYPESCRIPT_CHAT = EXAMPLES / "sidecar-typescript"
CURL_CHAT = EXAMPLES / "sidecar-curl"
SERVE = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "serve", "--app", "sidecar_shop:agent")
TOKEN = "token-of-the-sidecar"
BOUND = 120  # seconds; a sidecar that a client starts loads a model library


def typescript_chat(url: str) -> list[str]:
    """The argv of the example in TypeScript."""
    assert (TYPESCRIPT_CHAT / "node_modules").is_dir(), "the packages of the example are missing: run `make setup`"
    return [NODE, str(TYPESCRIPT_CHAT / "chat.ts"), url]


def curl_chat(url: str) -> list[str]:
    """The argv of the example with curl. Skips where there is no curl, or no bash."""
    for program in ("curl", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: install the package {program} to try the example with curl")
    return ["bash", str(CURL_CHAT / "conversation.sh"), url]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a client, and of a sidecar that it starts."""
    return clean_environment(**{"WORLDAGENT_HOME": str(home), "WORLDAGENT_SIDECAR_TOKEN": TOKEN} | more)


class Client:
    """An example that runs.

    Attributes:
        said: What it has printed, as far as a test waited for it.
    """

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self.said = ""

    async def sees(self, *texts: str) -> None:
        """Wait until it has printed these, in this order, after what was waited for before."""
        for text in texts:
            try:
                self.said += (await asyncio.wait_for(self._out.readuntil(text.encode()), BOUND)).decode()
            except TimeoutError:
                raise AssertionError(f"it did not print {text!r} in time after {self.said!r}") from None
            except asyncio.IncompleteReadError as ended:
                raise AssertionError(f"it ended without {text!r}: {self.said + ended.partial.decode()!r}") from None

    async def types(self, line: str) -> None:
        """Type a line into it."""
        self._in.write(f"{line}\n".encode())
        await self._in.drain()

    async def ends(self) -> int:
        """End what is typed, and give the code that it ends with."""
        self._in.close()
        self.said += (await asyncio.wait_for(self._out.read(), BOUND)).decode()
        return await asyncio.wait_for(self._process.wait(), BOUND)

    @property
    def children(self) -> list[psutil.Process]:
        """The processes that it has started, theirs too."""
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found


@asynccontextmanager
async def client(command: Sequence[str], home: Path, **more: str) -> AsyncGenerator[Client]:
    """Run an example, in the folder of the app that its sidecar serves."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=EXAMPLES, env=environment(home, **more)
    )
    async with ending(process):
        running = Client(process)
        try:
            yield running
        finally:
            with suppress(psutil.NoSuchProcess):  # it has ended, and its sidecar with it
                for child in running.children:
                    child.kill()


class Sidecar:
    """A sidecar over HTTP that can be killed and started again, behind an address that stays. Started on entering.

    Args:
        home: Its home.
        pace: Seconds before each word of its model.
    """

    def __init__(self, home: Path, pace: float = 0.15) -> None:
        self._home, self._pace = home, pace
        self._process: Process | None = None
        self._port = 0
        self._wires: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Sidecar":
        self._relay = await asyncio.start_server(self._join, "127.0.0.1", 0)
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._relay.close()
        self.cut()
        await self.kill()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self._relay.sockets[0].getsockname()[1]}/mcp"

    async def start(self) -> None:
        """Start it."""
        errors = self._home.with_suffix(".err")
        with errors.open("ab") as out:
            self._process = await forks.start(
                (*SERVE, "--http", "127.0.0.1:0"),
                cwd=EXAMPLES,
                env=environment(self._home, SHOP_PACE=str(self._pace)),
                stderr=out.fileno(),
            )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), BOUND)).decode().strip()
        assert line.startswith("http://127.0.0.1:"), f"it did not start: {errors.read_text(encoding='utf-8')}"
        self._port = int(line.removeprefix("http://127.0.0.1:").removesuffix("/mcp"))

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await asyncio.wait_for(self._process.wait(), BOUND)

    def cut(self) -> None:
        """Break every connection with it; it runs on."""
        for wire in self._wires:
            wire.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        wires = {writer, back}
        self._wires |= wires
        tasks = [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer))]
        await asyncio.wait(tasks)
        self._wires -= wires


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(1 << 16):
            sink.write(piece)
            await sink.drain()
        sink.close()
    except OSError:
        sink.transport.abort()


def plain(said: str) -> str:
    """What a client has printed without its notices in brackets, and with single blanks."""
    lines = [line for line in said.splitlines() if not line.startswith("[")]
    return " ".join(" ".join(lines).split())


_TURN = re.compile(r"turn_[0-9a-f]{32}")
_STATE = re.compile(r'("requestState": ?")([^"]+)(")')
_OTHERS = (
    (re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "2030-01-01T10:00:00Z"),
    (re.compile(r'(\\?"seconds\\?": ?)[\d.e-]+'), r"\g<1>1.5"),
    (re.compile(r'(\\?"input_tokens\\?": ?)\d+'), r"\g<1>240"),
    (re.compile(r'(\\?"output_tokens\\?": ?)\d+'), r"\g<1>20"),
    (re.compile(r'("version": ?")[\d.]+'), r"\g<1>0.2.0"),
)


class Names:
    """What stands on the page for what differs from run to run: ids of turns, what a client only echoes, times."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._states: dict[str, str] = {}

    def shown(self, line: str) -> str:
        """A line of the server's as it stands on the page."""
        line = _TURN.sub(lambda found: self._name(self._turns, found[0], "turn"), line)
        line = _STATE.sub(lambda found: f"{found[1]}{self._name(self._states, found[2], 'state')}{found[3]}", line)
        for pattern, put in _OTHERS:
            line = pattern.sub(put, line)
        return line

    def meant(self, line: str) -> str:
        """A line of the page's as it is sent."""
        for known in (self._turns, self._states):
            for real, name in known.items():
                line = re.sub(rf"\b{name}\b", real.replace("\\", r"\\"), line)
        return line

    @staticmethod
    def _name(known: dict[str, str], real: str, kind: str) -> str:
        return known.setdefault(real, f"{kind}_{len(known) + 1}")


def tool_rows() -> list[str]:
    """Give the rows of the table of tools: what each takes beside what all take, and what its answer has."""
    found = []
    for name, spec in TOOLS.items():
        apart = _OF_ALL | (_OF_STARTS if issubclass(spec.arguments, SurfaceArguments) else set())  # in other tables
        found.append(
            f"| `{name}` | {_names(spec.arguments, apart)} | {_names(spec.answer, {'contract'}, bold=False)} |"
        )
    return found


def _names(model: type[BaseModel], without: set[str], *, bold: bool = True) -> str:
    fields = {name: field for name, field in model.model_fields.items() if name not in without}
    return ", ".join(f"**`{name}`**" if bold and field.is_required() else f"`{name}`" for name, field in fields.items())


_OF_ALL = {"workspace", "account"}
_OF_STARTS = {"name", "role", "model", "key", "after", "detach", "pauses"}


class Talk:
    """A conversation with a sidecar over its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._lines, self._names = Conversation(process, BOUND), Names()

    async def say(self, line: str) -> None:
        """Send a line of the page."""
        await self._lines.say(self._names.meant(line).encode())

    async def hear(self) -> dict[str, Any]:
        """Give the next message as the page has it."""
        message: dict[str, Any] = json.loads(self._names.shown((await self._lines.line()).decode()))
        return message


@asynccontextmanager
async def talk(home: Path) -> AsyncGenerator[Talk]:
    """Start a sidecar of the app of the examples."""
    home.mkdir(exist_ok=True)
    with home.with_suffix(".err").open("ab") as out:
        process = await forks.start(
            (*SERVE, "--stdio"), cwd=EXAMPLES, env=environment(home, SHOP_PACE="0"), stderr=out.fileno()
        )
    async with ending(process):
        yield Talk(process)
