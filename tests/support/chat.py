"""Chats for tests: the chat service that answers, the settings they run with, and how they are started.

The fixtures are those of `tests/hosts/conftest.py`.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte
import pytest

from support import forks
from support.house import ROOT
from support.openai_stub import OpenAIStub

ENTER, CTRL_C, CTRL_D, ALT_ENTER, UP, TAB = "\r", "\x03", "\x04", "\x1b\r", "\x1b[A", "\t"


class _Screen(pyte.HistoryScreen):
    """Answers what a program asks the terminal, as real ones do."""

    answer: Callable[[str], None]

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """Use it as `async with Terminal(argv, env=...) as terminal:`; what is left of the process is killed at the end.

    Args:
        argv: The program and its arguments.
        env: Its environment.
        columns: The terminal's width.
        lines: Its height.
        fresh: It has to be a fresh process.

    Attributes:
        raw: Every byte that the process wrote.
        process: The process, whose controlling terminal this is.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
        fresh: bool = False,
    ) -> None:
        self._argv, self._env, self._size, self._fresh = argv, env, (lines, columns), fresh
        self._screen = _Screen(columns, lines, history=2000, ratio=0.5)
        self._screen.answer = self.write
        self._stream = pyte.ByteStream(self._screen)
        self._changed = asyncio.Event()
        self._master = -1
        self.raw = bytearray()
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave  # kept, so that what the process leaves behind can be looked at
        try:
            self.process = await forks.start(
                self._argv,
                env={"TERM": "xterm-256color", **self._env},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                terminal=True,
                fresh=self._fresh,
            )
        except BaseException:
            os.close(self._master)
            os.close(slave)
            raise
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as one who closes its window."""
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._slave)
            os.close(self._master)
            self._master = -1

    def modes(self) -> list[Any]:
        """What the terminal is set to; `before` is what it was at the start."""
        return termios.tcgetattr(self._slave)

    def write(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def paste(self, text: str) -> None:
        """Paste a text, as a terminal does where the program has asked to know of it."""
        self.write(f"\x1b[200~{text}\x1b[201~")

    @property
    def lines(self) -> list[str]:
        """All lines, with those that have scrolled away, without blanks at their ends."""
        width = self._screen.columns
        gone = ["".join(line[at].data for at in range(width)).rstrip() for line in self._screen.history.top]
        return gone + [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """All lines down to the last that has something on it."""
        return "\n".join(self.lines).rstrip()

    async def until(self, seen: Callable[[], bool], limit: float = 60) -> None:
        """Wait until `seen` says so.

        Raises:
            AssertionError: It did not in time; the text is the screen.
        """
        try:
            async with asyncio.timeout(limit):
                while not seen():
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            raise AssertionError(f"not seen within {limit} seconds on:\n{self.text}") from None

    async def shows(self, *texts: str, limit: float = 60) -> str:
        """Wait until all of `texts` are on the screen or above it, and give everything."""
        await self.until(lambda: all(text in self.text for text in texts), limit)
        return self.text

    async def prompt(self, prompt: str = "main>", limit: float = 60) -> str:
        """Wait for an empty prompt in the last line, and give everything."""
        await self.until(lambda: self.text.rsplit("\n", 1)[-1] == prompt, limit)
        return self.text

    async def say(self, text: str, *, prompt: str = "main>", then: str | None = None) -> str:
        """Wait for the prompt, type a text, press Enter, wait for the prompt after it, and give what came between."""
        before = len((await self.prompt(prompt)).splitlines())
        self.write(text + ENTER)
        await self.until(lambda: len(self.text.splitlines()) > before)
        return "\n".join((await self.prompt(then or prompt)).splitlines()[before:-1]).strip()

    async def ended(self, limit: float = 60) -> int:
        """Wait for the process's end and give its exit code."""
        return await asyncio.wait_for(self.process.wait(), limit)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += data
        with contextlib.suppress(OSError):  # an answer to a process that is gone
            self._stream.feed(data)
        self._changed.set()


COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "chat")
CHAT = (*COMMAND, "--lm", "openai/answer")
SHOP = (*COMMAND, "--app", "support.shop:agent")
BOUND = 90  # seconds
FOREIGN = ("TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PROMPT_TOOLKIT_")

Start = Callable[..., AbstractAsyncContextManager[Terminal]]


@pytest.fixture
def environment(stub: OpenAIStub, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PYTHONPATH": str(ROOT / ".dev"),
        "WORLDAGENT_HOME": str(home),
        "WORLDAGENT_API_BASE": stub.url,
        "WORLDAGENT_MODEL_TOOLS": "json",
        "WORLDAGENT_MODEL_ATTEMPTS": "1",
        "OPENAI_API_KEY": "key-of-a-test",
    }


def starting(environment: dict[str, str], argv: tuple[str, ...], place: str) -> Start:
    @asynccontextmanager
    async def chat(
        *words: str, argv: tuple[str, ...] = argv, prompt: str | None = "main>", fresh: bool = False, **more: str
    ) -> AsyncGenerator[Terminal, None]:
        async with Terminal([*argv, *words], env=environment | more, fresh=fresh) as terminal:
            if prompt is not None:
                await terminal.shows(f"\n{place}")
                await terminal.prompt(prompt)
            yield terminal

    return chat


@pytest.fixture
def start(environment: dict[str, str]) -> Start:
    """Start a chat at a terminal of 80 by 24, and wait until it is loaded and shows `prompt`."""
    return starting(environment, CHAT, "model ")


@pytest.fixture
def shop(environment: dict[str, str]) -> Start:
    """The same with the shop's agent."""
    return starting(shopping(environment), SHOP, "workspace shop")


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
    process = await forks.start((*argv, *words), env=environment)
    out, told = await asyncio.wait_for(process.communicate(stdin), BOUND)
    return process.returncode, out.decode(), told.decode()


async def chatted(
    environment: dict[str, str], *lines: str, argv: tuple[str, ...] = CHAT, code: int | None = None
) -> list[dict[str, Any]]:
    """What a chat through pipes prints for these lines as JSON; `code` is how it has to exit, if that matters."""
    ended, out, told = await piped(environment, "".join(f"{line}\n" for line in lines).encode(), "--json", argv=argv)
    assert (ended if code is not None else None, told) == (code, "")
    return [json.loads(line) for line in out.splitlines()]
