"""The lines of standard input, with an end that does not wait for the next one. What they mean is not known here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress

_CHUNK = 1 << 16
_LIMIT = 4 << 20  # bytes in a line; as much as the HTTP transport takes
_AHEAD = 64  # lines that are read before they are wanted


class Lines:
    """The lines of a file descriptor, for one loop. A line of more than 4 MiB ends them.

    They are read in a thread, and not through `sys.stdin`: that holds a lock which the interpreter wants when it ends.

    Args:
        descriptor: What to read.
        finish: Awaited between the last line and the end.
    """

    def __init__(self, descriptor: int, finish: Callable[[], Awaitable[None]]) -> None:
        self._descriptor = descriptor
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(_AHEAD)
        self._ended = asyncio.Event()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._next()
        if line is None:
            await self._finish()
            raise StopAsyncIteration
        return line

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="worldagent-stdin", daemon=True).start()

    def end(self) -> None:
        """Be at the end, whatever is still to come."""
        self._ended.set()

    async def _next(self) -> str | None:
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
        rest = b""
        # The loop may be gone by now: then nobody wants lines either.
        with suppress(RuntimeError, OSError, CancelledError):
            while len(rest) <= _LIMIT and (chunk := os.read(self._descriptor, _CHUNK)):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    self._give(line.decode("utf-8", "replace"))
            self._give(None)

    def _give(self, line: str | None) -> None:
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        finally:
            putting.close()  # where the loop is gone, it never began


__all__ = ["Lines"]
