"""Chats for tests: the chat service that answers, the settings they run with, and how they are started.

The fixtures are for the test modules that import them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support import forks
from support import openai_stub as stubs
from support.house import ROOT
from support.openai_stub import OpenAIStub, openai_stub
from support.terminal import Terminal

COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "chat")
CHAT = (*COMMAND, "--lm", "openai/answer")
SHOP = (*COMMAND, "--app", "support.shop:agent")
BOUND = 90  # seconds
FOREIGN = ("TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PROMPT_TOOLKIT_")

Start = Callable[..., AbstractAsyncContextManager[Terminal]]


class Service:
    """The chat service: what it says next, piece by piece, and what it was asked.

    Attributes:
        stub: The server.
        answers: The replies to come, as pieces; between two it waits for `go_on`. When none is left it says `Paris.`.
        go_on: Lets it go on.
        gone: Set when the caller went away meanwhile.
    """

    def __init__(self, stub: OpenAIStub) -> None:
        self.stub = stub
        self.answers: list[tuple[str, ...]] = []
        self.go_on = asyncio.Event()
        self.gone = asyncio.Event()
        self.readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}

    def asked(self, at: int = -1) -> str:
        """All that a request told the model."""
        return "\n".join(message["content"] for message in self.stub.requests[at]["messages"])

    def said(self, at: int = -1) -> str:
        """What the person said in a request, with what follows it: the messages since the last answer."""
        messages = self.stub.requests[at]["messages"]
        last = max((place for place, each in enumerate(messages) if each["role"] != "user"), default=-1)
        return "\n\n".join(str(each["content"]) for each in messages[last + 1 :])

    async def stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        pieces = self.answers.pop(0) if self.answers else ("Paris.",)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number, piece in enumerate(("[[ ## reply ## ]]\n" + pieces[0], *pieces[1:])):
            if number:
                await self._going_on(writer)
            last = "\n\n[[ ## completed ## ]]" if number == len(pieces) - 1 else ""
            delta = {"index": 0, "delta": {"role": "assistant", "content": piece + last}, "finish_reason": None}
            stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [delta]})
            await writer.drain()
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [end]})
        stubs._raw_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def _going_on(self, writer: asyncio.StreamWriter) -> None:
        """Wait for the word, or for the caller to hang up."""
        going = asyncio.ensure_future(self.go_on.wait())
        closed = asyncio.ensure_future(self.readers[writer].read(1))
        await asyncio.wait({going, closed}, return_when=asyncio.FIRST_COMPLETED)
        self.go_on.clear()
        going.cancel()
        if closed.done():
            self.gone.set()
            raise ConnectionError
        closed.cancel()
        await asyncio.wait({closed})


@pytest_asyncio.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Service, None]:
    async with openai_stub() as stub:
        running = Service(stub)
        serve = OpenAIStub.serve

        async def noted(self: OpenAIStub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            running.readers[writer] = reader
            await serve(self, reader, writer)

        monkeypatch.setattr(OpenAIStub, "serve", noted)
        monkeypatch.setattr(OpenAIStub, "_stream", lambda _, writer, body: running.stream(writer, body))
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(service: Service, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PYTHONPATH": str(ROOT / ".dev"),
        "WORLDAGENT_HOME": str(home),
        "WORLDAGENT_API_BASE": service.stub.url,
        "WORLDAGENT_MODEL_TOOLS": "json",
        "WORLDAGENT_MODEL_ATTEMPTS": "1",
        "OPENAI_API_KEY": "key-of-a-test",
    }


@pytest.fixture
def start(environment: dict[str, str]) -> Start:
    """Start a chat at a terminal of 80 by 24, and wait until it is loaded."""

    @asynccontextmanager
    async def chat(
        *words: str, argv: tuple[str, ...] = CHAT, loaded: bool = True, fresh: bool = False, **more: str
    ) -> AsyncGenerator[Terminal, None]:
        async with Terminal([*argv, *words], env=environment | more, fresh=fresh) as terminal:
            if loaded:
                await terminal.shows("\nmodel ")
                await terminal.prompt()
            yield terminal

    return chat


@pytest.fixture
def shop(environment: dict[str, str]) -> Start:
    """Start a chat with the shop's agent at a terminal of 80 by 24, and wait until it is loaded and shows `prompt`."""

    @asynccontextmanager
    async def chat(*words: str, prompt: str | None = "main>", **more: str) -> AsyncGenerator[Terminal, None]:
        async with Terminal([*SHOP, *words], env=shopping(environment) | more) as terminal:
            if prompt is not None:
                await terminal.shows("\nworkspace shop")
                await terminal.prompt(prompt)
            yield terminal

    return chat


def shopping(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a chat that finds the shop."""
    return environment | {"PYTHONPATH": os.pathsep.join((environment["PYTHONPATH"], str(ROOT / "tests")))}


def dispatching(shape: str, what: str = "hat") -> tuple[str, ...]:
    """What the model says to have a shape of the shop's work."""
    return ("I shall see.\n\n[[ ## calls ## ]]\n" + json.dumps([{"tool": shape, "arguments": {"what": what}}]),)


async def piped(
    environment: dict[str, str], stdin: bytes, *words: str, argv: tuple[str, ...] = CHAT
) -> tuple[int | None, str, str]:
    """Run a chat whose streams are pipes, to its end."""
    process = await forks.start(
        (*argv, *words),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, told = await asyncio.wait_for(process.communicate(stdin), BOUND)
    return process.returncode, out.decode(), told.decode()


__all__ = [
    "BOUND",
    "CHAT",
    "COMMAND",
    "SHOP",
    "Service",
    "Start",
    "dispatching",
    "environment",
    "home",
    "piped",
    "service",
    "shop",
    "shopping",
    "start",
]
