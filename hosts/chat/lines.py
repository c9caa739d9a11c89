"""A chat without a terminal to draw on: it reads messages line by line, and prints answers as `ask` does."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from ...core.errors import InvalidArgument, WorldAgentError
from ...core.pauses import Pause
from ..cli.options import ChatOptions
from ..cli.output import Output
from ..cli.sources import decoded
from ..cli.turn_run import pauses_text, report, resume_command

if TYPE_CHECKING:
    from ...agent import Turn
    from .session import Session, Waiting

_LIMIT: Final = 8 << 20  # bytes of one line


class Interrupted(Exception):
    """Ctrl-C at the prompt."""


class LineInput:
    """Reads messages from standard input, line by line.

    Args:
        prompting: Whether a person types at a terminal that cannot be drawn on. There is a prompt then, and a backslash
            at the end of a line continues the message on the next one.

    Attributes:
        trusted: Whether a person types the lines. Lines that a program pipes in cannot name files.
    """

    def __init__(self, *, prompting: bool = False) -> None:
        self._prompting = prompting
        self.trusted = prompting or sys.stdin.isatty()
        # A separate file, since Python waits at exit for a thread that holds the lock of `sys.stdin`.
        self._stdin = open(0, "rb", closefd=False)  # noqa: SIM115 -- open as long as the process
        self._number = 0
        self._line: asyncio.Future[bytes | None] | None = None
        self._interrupt: asyncio.Future[None] | None = None

    async def read(self, prompt: str) -> str:
        """The next message.

        Args:
            prompt: The prompt.

        Raises:
            EOFError: There are no more messages.
            Interrupted: Ctrl-C.
            InvalidArgument: The line is too long, or not UTF-8.
        """
        lines: list[str] = []
        while True:
            if self._prompting:
                print(" " * len(prompt) if lines else prompt, end="", flush=True)
            lines.append(self._decode(await self._next()))
            if not self._prompting or not lines[-1].endswith("\\"):
                return "\n".join(lines)
            lines[-1] = lines[-1][:-1]

    async def word(self, session: Session) -> str:
        """The next line that is typed while a turn runs.

        Args:
            session: The chat.

        Raises:
            EOFError: There are no more lines.
            InvalidArgument: The line is too long, or not UTF-8.
        """
        return self._decode(await self._next())

    async def above(self, show: Callable[[], None]) -> None:
        """Show something while a line may be read."""
        show()

    def interrupt(self) -> None:
        """Make the current read raise `Interrupted`."""
        if self._interrupt is not None and not self._interrupt.done():
            self._interrupt.set_result(None)

    async def _next(self) -> bytes | None:
        """The next line; None if it is too long. After an interrupt, the next call returns the line being read.

        Raises:
            EOFError: There are no more lines.
            Interrupted: Ctrl-C.
        """
        loop = asyncio.get_running_loop()
        if self._line is None:
            self._line = loop.create_future()
            # A daemon thread, since a read that never returns must not delay the end of the process.
            threading.Thread(target=_read_line, args=(self._stdin, loop, self._line), daemon=True).start()
        self._interrupt = loop.create_future()
        await asyncio.wait((self._line, self._interrupt), return_when=asyncio.FIRST_COMPLETED)
        interrupted = self._interrupt.done()
        if self._prompting and (interrupted or self._line.result() == b""):
            print()
        if interrupted:
            raise Interrupted
        self._interrupt.cancel()
        line, self._line = self._line.result(), None
        if line == b"":
            raise EOFError
        self._number += 1
        return line

    def _decode(self, line: bytes | None) -> str:
        if line is None:
            raise InvalidArgument(
                f"line {self._number} is longer than {_LIMIT} bytes, and none of it was sent",
                remedy="send it in several messages",
            )
        return decoded(f"line {self._number}", line)


def _read_line(stdin: IO[bytes], loop: asyncio.AbstractEventLoop, line: asyncio.Future[bytes | None]) -> None:
    """Read a line on its own thread; empty is the end. If the line is too long, the rest of it is read and dropped."""
    found: bytes | None = None
    try:
        found = rest = stdin.readline(_LIMIT + 1)
        while len(rest) > _LIMIT and not rest.endswith(b"\n"):
            found, rest = None, stdin.readline(_LIMIT + 1)
    except OSError:  # a terminal that is gone
        found = b""

    def give() -> None:
        if not line.done():
            line.set_result(found)

    try:
        loop.call_soon_threadsafe(give)
    except RuntimeError:  # the chat has ended meanwhile
        return


class Printer(Output):
    """Prints answers and JSON on stdout and everything about them on stderr, as `ask` does."""

    def __init__(self, options: ChatOptions) -> None:
        super().__init__(json=options.json, verbose=options.verbose)
        self._options = options

    def begin(self, options: ChatOptions) -> None:
        """Print nothing: the output is data."""

    def opened(self, about: str, trouble: WorldAgentError | None) -> None:
        """Print nothing: the output is data."""

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Begin a new answer."""
        self._shown = ""
        yield

    def typing(self, text: str) -> None:
        """Print nothing: the output is data."""

    def next(self, text: str) -> None:
        """Begin the answer to a message that waited."""
        self._shown = ""

    def ended(self, turn: Turn) -> None:
        """Print the turn. If it waits, the text for people goes to stderr."""
        report(turn, self, resume_command(self._options, turn.thread), self._options)

    def waits(self, waiting: Waiting, thread_id: str) -> None:
        """Print what an earlier turn waits for."""
        command = resume_command(self._options, thread_id)
        pauses = [pause.to_json() for pause in waiting.open]
        self.result({"status": "paused", "pauses": pauses, "resume": command})
        if self.form != "json":
            self.note(pauses_text(waiting.open, command))

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """Print that an answer was accepted, and how many are left."""
        left = [other.id for other in waiting.open]
        self.result({"answered": pause.id, "open": left})
        if self.form != "json":
            self.note(f"answered {pause.id}; {len(left)} to go")

    def show_result(self, command: str, text: str) -> None:
        """Print the output of a command."""
        self.result({"command": command, "text": text}, text)

    def told(self, text: str) -> None:
        """Print nothing: the output is data."""

    def copy(self, text: str) -> None:
        """Refuse to copy: the output is data.

        Raises:
            InvalidArgument: Always.
        """
        raise InvalidArgument("/copy needs a terminal", remedy="take the answer from standard output")

    def hung_up(self) -> None:
        """Do nothing: the terminal is gone, but the streams may still work."""
