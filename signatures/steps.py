"""Work of the event loop in small steps, with the loop's other work in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

_T = TypeVar("_T")

SLICE: Final = 1024
"""Characters of a text that are worked on in one step: some 10 ms at most."""

_TURN = 0.005  # seconds after which the loop's other work has its turn

Steps = Generator[None, None, _T]
"""Work that yields between its steps and returns what it made."""


class Pause:
    """Awaited between steps, it lets the loop do its other work once the steps took long enough."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def __call__(self) -> None:
        """Let the loop do its other work where it is time."""
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
    """Do the steps with pauses. When it is cancelled, no frame of the work is kept by the traceback."""
    try:
        await asyncio.sleep(0)  # what led here took its time too
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
