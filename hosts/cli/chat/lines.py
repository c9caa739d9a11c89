"""A chat where there is no terminal to draw on: messages line by line, answers as `ask` prints them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....core.errors import InvalidArgument, WorldAgentError
from ....core.events import Event
from ....core.pauses import Pause
from .._options import ChatOptions
from .._output import Form, Output
from .._turn import pauses_text, resume_command
from .ports import Interrupted

if TYPE_CHECKING:
    from ....agent import Turn
    from .session import Talk
    from .waiting import Waiting

_PIECE: Final = 1 << 16
_LIMIT: Final = 8 << 20  # bytes of one line


@dataclass(frozen=True)
class _Line:
    data: bytes  # without its end
    ended: bool = True  # by a line feed
    cut: bool = False  # longer than what is kept of it


class LineInput:
    """Reads standard input line by line, as the loop's source.

    Args:
        prompting: Whether a person sits at a terminal that nothing can be drawn on: there is a prompt, and a backslash
            at the end of a line goes on with the next one.
    """

    early = False

    def __init__(self, *, prompting: bool = False) -> None:
        self._prompting = prompting
        self.trusted = prompting or sys.stdin.isatty()
        self._begun = b""  # what was read beyond the last line
        self._number = 0
        self._line: asyncio.Future[_Line] | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def read(self, prompt: Callable[[], str], default: str) -> str:
        """The next message; see `Source`."""
        lines: list[str] = []
        while True:
            if self._prompting:
                print(" " * len(prompt()) if lines else prompt(), end="", flush=True)
            lines.append(self._decoded(await self._next()))
            if not self._prompting or not lines[-1].endswith("\\"):
                return "\n".join(lines)
            lines[-1] = lines[-1][:-1]

    def interrupt(self) -> None:
        """End the reading that is under way with `Interrupted`."""
        if self._waiting is not None and not self._waiting.done():
            if self._prompting:
                print()
            self._waiting.set_exception(Interrupted())

    def opened(self, talk: Talk) -> None:
        """There is no history of lines that nobody types again."""

    async def beside(self, show: Callable[[], None]) -> None:
        """Call `show`."""
        show()

    async def _next(self) -> _Line:
        """Wait for a line. One that an interrupt leaves behind is there for the next call.

        Raises:
            EOFError: There is none.
        """
        loop = asyncio.get_running_loop()
        if self._line is None:
            self._line = loop.create_future()
            # A daemon, and no buffer of Python's: a read that never returns must not hold up the end of the process.
            threading.Thread(target=self._read, args=(loop, self._line), daemon=True).start()
        self._waiting = loop.create_future()
        either: set[asyncio.Future[Any]] = {self._line, self._waiting}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._waiting.done():
            self._waiting.result()
        self._waiting.cancel()
        line, self._line = self._line.result(), None
        if line == _Line(b"", ended=False):
            if self._prompting:
                print()
            raise EOFError
        self._number += 1
        return line

    def _read(self, loop: asyncio.AbstractEventLoop, line: asyncio.Future[_Line]) -> None:
        pieces, length, ended = [self._begun], len(self._begun), b"\n" in self._begun
        while not ended and (piece := _piece()):
            # Of a line that is too long the rest is read and dropped, or it would be taken for a message.
            if length > _LIMIT:
                pieces.clear()
            pieces.append(piece)
            length += len(piece)
            ended = b"\n" in piece
        data, _, self._begun = b"".join(pieces).partition(b"\n")
        length -= len(self._begun) + ended
        found = _Line(data, ended) if length <= _LIMIT else _Line(b"", ended, cut=True)
        try:
            loop.call_soon_threadsafe(_set, line, found)
        except RuntimeError:  # the chat has ended meanwhile
            return

    def _decoded(self, line: _Line) -> str:
        if line.cut:
            raise InvalidArgument(
                f"line {self._number} is longer than {_LIMIT} bytes, and none of it was sent",
                remedy="send it in several messages",
            )
        try:
            return line.data.rstrip(b"\r\n").decode("utf-8-sig" if self._number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            at = error.start
        raise InvalidArgument(f"line {self._number} is not UTF-8 at byte {at}", remedy="convert it to UTF-8")


def _piece() -> bytes:
    try:
        return os.read(0, _PIECE)
    except OSError:  # a terminal that is gone
        return b""


def _set(line: asyncio.Future[_Line], found: _Line) -> None:
    if not line.done():
        line.set_result(found)


class Printer:
    """Prints answers and JSON on stdout and everything about them on stderr, as `ask` does."""

    interactive = False

    def __init__(self, options: ChatOptions) -> None:
        self._form: Form = "json" if options.json else "text"
        self._verbose = options.verbose
        self.notes = self._output = self._new()
        self._talk: Talk | None = None

    def begin(self, talk: Talk) -> None:
        """Nothing is printed: the output is data."""
        self._talk = talk

    def opened(self, talk: Talk, trouble: WorldAgentError | None) -> None:
        """Nothing: the output is data."""

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Begin another answer."""
        self._output = self._new()
        yield

    def event(self, event: Event) -> None:
        """Show one event of a turn."""
        self._output.event(event)

    def ended(self, turn: Turn) -> None:
        """Print the turn; of one that waits, text for people goes to stderr."""
        can_go_on = turn.status in ("paused", "stopped")
        self._output.turn(turn, resume=self._command if can_go_on else None)
        if can_go_on and self._form != "json":
            stopped = f"the turn was stopped; go on with: {self._command}"
            self._output.note(pauses_text(turn.pauses, self._command) if turn.pauses else stopped)

    def waits(self, waiting: Waiting) -> None:
        """Print what a turn waits for that was begun before."""
        if self._form == "json":
            pauses = [pause.to_json() for pause in waiting.open]
            self._output.result({"status": "paused", "pauses": pauses, "resume": self._command})
        else:
            self._output.note(pauses_text(waiting.open, self._command))

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """Print that an answer was taken, and how many are left."""
        left = [other.id for other in waiting.open]
        self._output.result({"answered": pause.id, "open": left})
        if self._form != "json":
            self._output.note(f"answered {pause.id}; {len(left)} to go")

    def told(self, command: str, text: str) -> None:
        """Print what a command found."""
        self._output.result({"command": command, "text": text}, text)

    def error(self, error: WorldAgentError) -> None:
        """Print why there is no answer."""
        self._output.error(error)

    def cancelled(self) -> None:
        """Print that the person has stopped the chat."""
        self._output.interrupted()

    def note(self, text: str) -> None:
        """Print something beside."""
        self._output.note(text)

    def hung_up(self) -> None:
        """Nothing: the streams may well be there."""

    @property
    def _command(self) -> str:
        """What goes on with the thread's turn."""
        assert self._talk is not None, "the chat has begun"
        return resume_command(self._talk.options, self._talk.thread_id)

    def _new(self) -> Output:
        return Output(self._form, verbose=self._verbose)


__all__ = ["LineInput", "Printer"]
