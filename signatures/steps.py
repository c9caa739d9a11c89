"""Work of the event loop in small steps, with other work of the loop in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

_T = TypeVar("_T")

SLICE: Final = 1024
"""Characters of a text that are processed in one step: at most about 10 ms."""

_TURN = 0.005  # seconds after which the loop gets a chance for other work

Steps = Generator[None, None, _T]
"""Work that yields between its steps and returns its result."""


class Pause:
    """Awaited between steps, it lets the loop do other work after the steps have taken long enough."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def __call__(self) -> None:
        """Let the loop do other work if it is time."""
        if time.perf_counter() - self._began >= _TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


def at_once(steps: Steps[_T]) -> _T:
    """Do all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _T = done.value
            return made


async def in_turns(steps: Steps[_T]) -> _T:
    """Do the steps with pauses. If it is cancelled, the traceback keeps no frame of the work."""
    try:
        await asyncio.sleep(0)  # the work before this took time too
        pause = Pause()
        while True:
            next(steps)
            await pause()
    except StopIteration as done:
        made: _T = done.value
        return made
    finally:
        steps.close()


__all__ = ["SLICE", "Pause", "Steps", "at_once", "in_turns"]
