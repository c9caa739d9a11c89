"""A sidecar that is sent what hypothesis makes, beside synchronous tests; it is looked at before and after."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from support.sidecar_calls import LEGACY, MODERN, Revision
from support.sidecar_clients import HttpClient, StdioClient
from support.sidecar_wire import BOUND, Wire
from support.sidecars import TOKEN, Sidecar, over_http, over_stdio

T = TypeVar("T")

INTERNAL = -32603
"""What the protocol has instead of HTTP's 500."""
_SILENCE = 0.1  # seconds after which a request that nobody answers is taken for one of which more must come
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
_MORE_TASKS, _MORE_FILES, _MORE_MEMORY = 8, 12, 64


class Probed:
    """A sidecar over HTTP and one over standard streams, with what probes need.

    Attributes:
        sidecar: The one over HTTP.
        clients: A client over HTTP in each revision.
        child: The client of the one over standard streams.
        tools: The input schemas of its tools.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.sidecar: Sidecar
        self.child: StdioClient
        self.clients: dict[Revision, HttpClient] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self._before: tuple[int, int, float] = (0, 0, 0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop of the clients."""
        return self._runner.run(work)

    async def open(self, folder: Path, opened: AsyncExitStack) -> None:
        """Start both."""
        self.sidecar = await opened.enter_async_context(over_http(folder / "http"))
        _, self.child = await opened.enter_async_context(over_stdio(folder / "stdio", LEGACY))
        for revision in (MODERN, LEGACY):
            client = await opened.enter_async_context(self.sidecar.client(revision))
            self.clients[revision] = client
            for number in range(3):
                await client.ask("converse", thread=f"warm {revision} {number}", text="Hi", detach=True)
        listed = await self.clients[MODERN].request("tools/list")
        self.tools = {tool["name"]: tool["inputSchema"] for tool in listed["tools"]}
        self._before = await self._held()

    async def check(self) -> None:
        """See that it still serves, and holds no more than when it began."""
        for client in (*self.clients.values(), self.child):
            answer = await client.ask("converse", thread="after", text="Hi")
            assert answer["turn"]["status"] == "done"
        async with asyncio.timeout(BOUND):
            while (await self.sidecar.get("/ready"))[1]["turns"]:  # noqa: ASYNC110 -- it is another process
                await asyncio.sleep(0.05)
        tasks, files, memory = await self._held()
        held = f"{self._before} before and {(tasks, files, memory)} after"
        assert tasks <= self._before[0] + _MORE_TASKS, held
        assert files <= self._before[1] + _MORE_FILES, held
        assert memory <= self._before[2] + _MORE_MEMORY, held

    async def _held(self) -> tuple[int, int, float]:
        return await self.sidecar.tasks(), self.sidecar.files, self.sidecar.memory

    async def statuses(self, sent: bytes) -> list[int]:
        """Send bytes on a connection of their own; gives the status of each answer.

        Raises:
            TimeoutError: It neither answered nor closed the connection that was closed on its side.
        """
        wire = await Wire.open(self.sidecar.url)
        came = b""
        with contextlib.suppress(ConnectionError):
            wire.writer.write(sent)
            with contextlib.suppress(TimeoutError):
                while part := await asyncio.wait_for(wire.reader.read(1 << 16), BOUND if not came else _SILENCE):
                    came += part
        wire.abort()
        return self.judged(came)

    async def unfinished(self, sent: bytes) -> list[int]:
        """The same where the bytes may be less than a request: after a moment of silence no more is sent."""
        wire = await Wire.open(self.sidecar.url)
        came = b""
        with contextlib.suppress(ConnectionError):
            wire.writer.write(sent)
            with contextlib.suppress(TimeoutError):
                while part := await asyncio.wait_for(wire.reader.read(1 << 16), _SILENCE):
                    came += part
            if wire.writer.can_write_eof():
                wire.writer.write_eof()
            async with asyncio.timeout(BOUND):
                while part := await wire.reader.read(1 << 16):
                    came += part
        wire.abort()
        return self.judged(came)

    def judged(self, came: bytes) -> list[int]:
        """The statuses in what came, after a look at all of it."""
        found = [int(status) for status in _STATUS.findall(came)]
        assert not [status for status in found if status >= 500 and status != 503], came[:2000]
        assert b"Traceback" not in came
        said = came.replace(b" ", b"")
        for code in (str(INTERNAL), '"internal"'):
            assert f'"code":{code}'.encode() not in said, (came[:2000], self.sidecar.errors.read_text()[-500:])
        return found

    async def alive(self) -> None:
        """See that it answers at once."""
        status, _ = await asyncio.wait_for(self.sidecar.get("/health"), BOUND)
        assert status == 200


def request(method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    """A request as bytes, with the length of its body, after which the connection is closed."""
    given = [("Host", "localhost"), *headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    head = "".join(f"{name}: {value}\r\n" for name, value in given)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def posted(client: HttpClient, body: bytes) -> bytes:
    """A body as a client of its revision would send it: the headers say what it says, where it says it."""
    method, params = "tools/call", {"name": "converse"}
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        said = json.loads(body)
        method = said["method"] if _plain(said["method"]) else method
        params = {"name": said["params"]["name"]} if _plain(said["params"]["name"]) else params
    return request("POST", "/mcp", list(client.headers(method, params).items()), body)


def _plain(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def sound(client: HttpClient) -> bytes:
    """A whole request that begins a turn."""
    call = client.message("tools/call", {"name": "converse", "arguments": {"thread": "sound", "text": "Hi"}})
    call["id"] = 1  # the same bytes each time
    return posted(client, json.dumps(call).encode())


@contextmanager
def probed() -> Generator[Probed]:
    """A sidecar to probe, in a folder that goes away; it is checked at the end."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        probes, opened = Probed(runner), AsyncExitStack()
        runner.run(_opened(probes, Path(folder), opened))
        try:
            yield probes
            runner.run(probes.check())
        finally:
            runner.run(opened.aclose())


async def _opened(probes: Probed, folder: Path, opened: AsyncExitStack) -> None:
    try:
        await probes.open(folder, opened)
    except BaseException:
        await opened.aclose()
        raise


__all__ = ["INTERNAL", "TOKEN", "Probed", "posted", "probed", "request", "sound"]
