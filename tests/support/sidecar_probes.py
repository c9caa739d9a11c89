"""A sidecar that is sent what hypothesis makes, beside synchronous tests; it is looked at before and after."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import tempfile
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic_core import from_json

from support.processes import eventually
from support.sidecar_calls import LEGACY, MODERN, Revision
from support.sidecar_clients import BOUND, HttpClient, StdioClient, exchanged, request
from support.sidecars import TOKEN, Sidecar, over_http, over_stdio, until

T = TypeVar("T")

INTERNAL = -32603
"""What the protocol has instead of HTTP's 500."""
NUMBER = b"@NUMBER@"
"""Stands in a line for a number that no other line has."""
_SILENCE = 0.05  # seconds after which a request without an answer is taken for one of which more must come
_HALF = re.compile(r"\\ud800(?!\\u)")  # the one that `RAW_VALUES` has
_FIRST = 10**6  # above the ids of the clients

_LONGEST_ID = 200  # characters, under which a line that is no message is refused
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
_MORE_TASKS, _MORE_FILES = 8, 12
# MiB. All in one process it was 3 over HTTP and 19 over standard streams; with 1,000 examples a test 8 and 18.
_MORE_MEMORY = {"http": 24, "stdio": 40}


@dataclass(frozen=True)
class Held:
    """What a process holds: tasks of its loop, files, and MiB of memory."""

    tasks: int
    files: int
    memory: float


class Probed:
    """A sidecar over HTTP and one over standard streams, with what probes need.

    Attributes:
        sidecar: The one over HTTP.
        clients: A client over HTTP in each revision.
        piped: The one over standard streams.
        child: Its client.
        tools: The input schemas of its tools.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.sidecar: Sidecar
        self.piped: Sidecar
        self.child: StdioClient
        self.clients: dict[Revision, HttpClient] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self._lines = itertools.count(1)
        self._before: list[Held] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop of the clients."""
        return self._runner.run(work)

    async def open(self, folder: Path, opened: AsyncExitStack) -> None:
        """Start both."""
        self.sidecar = await opened.enter_async_context(over_http(folder / "http"))
        self.piped, self.child = await opened.enter_async_context(over_stdio(folder / "stdio", LEGACY))
        for revision in (MODERN, LEGACY):
            client = await opened.enter_async_context(self.sidecar.client(revision))
            self.clients[revision] = client
        for each in (*self.clients.values(), self.child):
            for number in range(3):
                await each.ask("converse", thread=f"warm {each.revision} {number}", text="Hi", detach=True)
        listed = await self.clients[MODERN].request("tools/list")
        self.tools = {tool["name"]: tool["inputSchema"] for tool in listed["tools"]}
        self._before = await self._held()

    async def check(self) -> None:
        """See that it still serves, and holds no more than when it began."""
        for client in (*self.clients.values(), self.child):
            answer = await client.ask("converse", thread="after", text="Hi")
            assert answer["turn"]["status"] == "done"

        async def idle() -> bool:
            return not (await self.sidecar.get("/ready"))[1]["turns"]

        await until(idle)
        for name, before, after in zip(_MORE_MEMORY, self._before, await self._held(), strict=True):
            held = f"{name}: {before} before and {after} after"
            assert after.tasks <= before.tasks + _MORE_TASKS, held
            assert after.files <= before.files + _MORE_FILES, held
            assert after.memory <= before.memory + _MORE_MEMORY[name], held

    async def _held(self) -> list[Held]:
        return [Held(await each.tasks(), each.files, each.memory) for each in (self.sidecar, self.piped)]

    async def answers(self, line: bytes) -> list[dict[str, Any]]:
        """What is sent to a line by the time that what it waits for has come: its answer, and that to the next line.

        Args:
            line: What is said over standard streams; `NUMBER` in it becomes a number that no line had.

        Raises:
            AssertionError: No answer came under the id of the line, or none to the next line.
        """
        number = next(self._lines)
        line = line.replace(b"\n", b" ").replace(NUMBER, str(_FIRST + number).encode())
        asked, after = waits(line), f"after {number}"
        heard = self.child.heard
        del heard[:]
        await self.child.say(line)
        await self.child.send({"jsonrpc": "2.0", "id": after, "method": "tools/list"})

        def missing() -> list[str | int | None]:
            return [under for under in (*asked, after) if not _answered(heard, under)]

        came = await eventually(lambda: not missing(), BOUND)
        assert came, (line[:2000], missing(), heard, self.piped.errors.read_text()[-500:])
        return list(heard)

    async def statuses(self, sent: bytes) -> list[int]:
        """Send bytes on a connection of their own; gives the status of each answer.

        Raises:
            TimeoutError: It did not answer, or what it answered did not end.
        """
        return self.judged(await exchanged(self.sidecar.url, sent))

    async def unfinished(self, sent: bytes) -> list[int]:
        """The same where the bytes may be less than a request: after a moment of silence no more is sent."""
        where = urlsplit(self.sidecar.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        came = b""
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            with contextlib.suppress(TimeoutError):
                while part := await asyncio.wait_for(reader.read(1 << 16), _SILENCE):
                    came += part
            if writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(BOUND):
                came += await reader.read()
        writer.transport.abort()
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


def posted(client: HttpClient, body: bytes) -> bytes:
    """A body as a client of its revision would send it: the headers say what it says, where it says it."""
    method, params = "tools/call", {"name": "converse"}
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        said = json.loads(body)
        method = said["method"] if _plain(said["method"]) else method
        params = {"name": said["params"]["name"]} if _plain(said["params"]["name"]) else params
    return request("POST", "/mcp", client.headers(method, params).items(), body)


def _plain(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def sound(client: HttpClient) -> bytes:
    """A whole request that begins a turn."""
    call = client.message("tools/call", {"name": "converse", "arguments": {"thread": "sound", "text": "Hi"}})
    call["id"] = 1  # the same bytes each time
    return posted(client, json.dumps(call).encode())


def waits(line: bytes) -> list[str | int | None]:
    """The ids that a line has to be answered under: none, or one, which is None where it has no usable one.

    What asks for an answer has a method and an id. What is no JSON, or nested deeper than the reader takes, is told
    under no id.
    """
    text = _HALF.sub(r"\\ufffd", line.decode("utf-8", "replace"))
    try:
        said = from_json(text)
    except ValueError:
        return [None]
    if not isinstance(said, dict):
        return [None]
    if said.get("method") is None or "id" not in said or _tells(said):
        return []
    match said["id"]:
        case bool():
            return [None]
        case int() as number:
            return [number]
        case float() as number if number.is_integer() and abs(number) < 1 << 53:
            return [int(number)]
        case str() as name if len(name) <= _LONGEST_ID or _sound(said):
            return [name]
        case _:
            return [None]


def _tells(said: dict[str, Any]) -> bool:
    return said["id"] is None and str(said["method"]).startswith("notifications/") and _sound(said)


def _sound(said: dict[str, Any]) -> bool:
    return (
        said.get("jsonrpc") == "2.0" and isinstance(said["method"], str) and isinstance(said.get("params"), dict | None)
    )


def _answered(heard: list[Any], under: str | int | None) -> bool:
    found = [message["id"] for message in heard if "method" not in message]
    return any(type(each) is type(under) and each == under for each in found)


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


__all__ = ["INTERNAL", "NUMBER", "TOKEN", "Held", "Probed", "posted", "probed", "request", "sound"]
