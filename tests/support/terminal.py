"""A process at a real pseudo terminal, and the screen as a person sees it there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

from support.forks import start

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
            self.process = await start(
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

    async def flood(self, keys: str) -> None:
        """Press more keys than the terminal takes at once."""
        loop, left = asyncio.get_running_loop(), keys.encode()
        os.set_blocking(self._master, False)
        try:
            while left:
                writable = asyncio.Event()
                loop.add_writer(self._master, writable.set)
                await asyncio.wait_for(writable.wait(), 60)
                loop.remove_writer(self._master)
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._master, left[:4096]) :]
        finally:
            os.set_blocking(self._master, True)

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


__all__ = ["ALT_ENTER", "CTRL_C", "CTRL_D", "ENTER", "TAB", "UP", "Terminal"]
