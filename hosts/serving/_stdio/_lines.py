"""The lines of standard input, with an end that does not wait for the next one. What they mean is not known here."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Final, TypeAlias

from .._options import MIB
from ..logs import log

_CHUNK = 1 << 16
_AHEAD = 64  # lines that are read before they are wanted
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_HALVES = re.compile(
    r"""(?<!\\)((?:\\\\)*)                                      # no backslash of these escapes the next one
    (?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})""",
    re.VERBOSE,
)

LIMIT: Final = 4 * MIB
"""Bytes in a line, as many as the HTTP transport takes."""


class TooLong:
    """Stands for a line of more than `LIMIT` bytes, of which nothing is kept."""


Line: TypeAlias = str | TooLong


class Lines:
    """The lines of a file descriptor, for one loop.

    They are read in a thread, and not through `sys.stdin`: that holds a lock which the interpreter wants when it ends.

    Args:
        descriptor: What to read.
        finish: Awaited between the last line and the end.

    Attributes:
        handed: The lines that were given out; who looks at one again takes it from there.
    """

    def __init__(self, descriptor: int, finish: Callable[[], Awaitable[None]]) -> None:
        self._descriptor = descriptor
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue(_AHEAD)
        self._ended = asyncio.Event()
        self.handed: deque[Line] = deque()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> Line:
        line = await self._next()
        if line is None:
            await self._finish()
            raise StopAsyncIteration
        if isinstance(line, TooLong):
            log.warning("a line of more than %d bytes is refused", LIMIT)
        self.handed.append(line)
        return line

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="worldagent-stdin", daemon=True).start()

    def end(self) -> None:
        """Be at the end, whatever is still to come."""
        self._ended.set()

    async def _next(self) -> Line | None:
        if self._ended.is_set():
            return None
        reading, ending = asyncio.ensure_future(self._lines.get()), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()
            ending.cancel()

    def _read(self) -> None:
        cutting = _Cutting()
        # The loop may be gone by now: then nobody wants lines either.
        with suppress(RuntimeError, OSError, CancelledError):
            while chunk := os.read(self._descriptor, _CHUNK):
                for line in cutting.lines(chunk):
                    self._give(line)
            self._give(None)

    def _give(self, line: Line | None) -> None:
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        finally:
            putting.close()  # where the loop is gone, it never began


class _Cutting:
    """Cuts what is read into lines. One that is too long is told at once, and skipped to its end.

    In place of bytes that are no UTF-8, and of escapes of half a surrogate pair, stands U+FFFD: a call whose text was
    cut in the middle of a character is answered, and under its id.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipping = False

    def lines(self, chunk: bytes) -> Iterator[Line]:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield from self._hold(end)
            if not self._skipping:
                yield _whole(self._held.decode("utf-8", "replace"))
            self._held, self._skipping = bytearray(), False
        yield from self._hold(rest)

    def _hold(self, piece: bytes) -> Iterator[Line]:
        if self._skipping:
            return
        self._held += piece
        if len(self._held) > LIMIT:
            self._held, self._skipping = bytearray(), True
            yield TooLong()


def _whole(line: str) -> str:
    """The line without escapes of half a surrogate pair, which no reader of JSON here takes; all else as it came."""
    if _HALF.search(line) is None:
        return line
    return _HALVES.sub(lambda found: found[0] if found[2] else f"{found[1]}\ufffd", line)


__all__ = ["LIMIT", "Line", "Lines", "TooLong"]
