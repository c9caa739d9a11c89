"""Standard input and output as the wire of one connection: nothing else of the process reads or writes them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

_IN, _OUT, _ERR = 0, 1, 2


@contextmanager
def wire() -> Generator[tuple[int, int], None, None]:
    """Give descriptors of our own for both, which children do not inherit.

    For as long, whoever reads standard input finds its end, and what is printed goes to standard error: a stray line
    would break the protocol, and a child would take lines of ours.
    """
    incoming, outgoing = os.dup(_IN), os.dup(_OUT)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, _IN)
    os.close(empty)
    os.dup2(_ERR, _OUT)
    try:
        yield incoming, outgoing
    finally:  # they stay open: a thread may still wait for one of them, and its number must not go to another file
        os.dup2(incoming, _IN)
        os.dup2(outgoing, _OUT)


class Writer:
    """What the library writes its lines to. A client that does not read makes whoever writes wait, and nothing else.

    They are written in a thread that is left behind at the end: a pipe that is full may stay so for ever.

    Args:
        descriptor: Where they go.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._given: bytes | None = None
        self._wake = threading.Semaphore(0)
        self._done: asyncio.Future[None] | None = None
        self._left = False

    def start(self) -> None:
        """Begin to write."""
        threading.Thread(target=self._run, name="worldagent-stdout", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write a line, and wait until the system has it.

        Raises:
            OSError: Nobody reads any more.
        """
        if self._left:
            raise BrokenPipeError
        self._done = self._loop.create_future()
        self._given = text.encode("utf-8", "replace")
        self._wake.release()
        await self._done

    async def flush(self) -> None:
        """Do nothing: `write` has."""

    def leave(self, seconds: float) -> None:
        """Wait for the client so many seconds more; then be as if nobody read any more."""
        self._loop.call_later(seconds, self._leave)

    def _leave(self) -> None:
        self._left = True
        self._tell(self._done, BrokenPipeError())

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            problem: OSError | None = None
            left = memoryview(self._given or b"")
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                problem = error
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell, self._done, problem)

    @staticmethod
    def _tell(done: asyncio.Future[None] | None, problem: OSError | None) -> None:
        if done is None or done.done():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)


__all__ = ["Writer", "wire"]
