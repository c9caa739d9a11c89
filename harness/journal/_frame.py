"""A body that calls others, and how its calls are held in order when it runs again (D8).

A body that is replayed gets its history first: recorded results at once, recorded failures when all recorded calls were
asked for again, anything new only after that. While a person is asked, the `await` of the call simply does not return;
once nothing in the body moves any more, the body is cancelled. No exception that it could catch means "paused".
What one call does is `_drive`'s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from ...core import digest
from ...core.errors import DepthExceeded, Diverged, FunctionInvalid
from ._drive import ABOUT_THE_TURN, IN_LEAF, Drive
from ._steps import SUSPENDED, Step

DEPTH: Final = 5
"""How deep calls may nest (H4)."""

_GRACE: Final = 0.02  # seconds without any movement after which a body that waits is taken to wait for a person
_LATE: Final = 2.0  # seconds after which a body that wants something new is taken to have forgotten what it did before
_ABANDONED: Final = 5  # cancellations after which a body that swallows them is left alone


@dataclass(slots=True)
class _Lane:
    """Calls that are held back, and what lets them through."""

    held: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)


class Frame:
    """What the calls of one body have in common.

    Args:
        drive: The turn's.
        path: The path id of the call whose body it is.
        depth: How deep it stands; the turn's own calls are 1.
    """

    def __init__(self, drive: Drive, path: str, depth: int) -> None:
        self.drive = drive
        self.path = path
        self.depth = depth
        self._seen: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[Any]] = []
        self._moved = asyncio.Event()
        self._waiting = self._live = self._held = 0
        self._closed = False
        self._unvisited = drive.recorded_below(path)
        self._caught_up = asyncio.Event()
        self._failures, self._new = _Lane(), _Lane()
        if not self._unvisited:
            self._caught_up.set()

    def child(self, name: str, data: object, key: str | None = None) -> str:
        """The path id of the next call of `name` with this input; equal ones are numbered."""
        base = f"{self.path}/{name}:{key if key is not None else digest(data, length=12)}"
        count = self._seen[base]
        self._seen[base] += 1
        return f"{base}.{count}" if count else base

    async def do(self, step: Step) -> Any:
        """Do a step for the body. Where a person is asked, this does not return in this run.

        Raises:
            FunctionInvalid: It is a leaf that asks.
            DepthExceeded: Calls nest too deep.
            WorldAgentError: What the step raised.
        """
        leaf = IN_LEAF.get()
        if leaf is not None:
            raise FunctionInvalid(
                f"the leaf {leaf!r} calls {step.name!r}", remedy="make it a @flow, and its own effects leaves"
            )
        if self.depth >= DEPTH:
            raise DepthExceeded(
                f"the call of {step.name!r} is {self.depth + 1} deep, and {DEPTH} is the limit",
                remedy="let calls nest less deep",
            )
        if self._closed:
            await _never()
        await self.drive.settle(self.path)
        task = asyncio.create_task(self._go(step))
        self._tasks.append(task)
        value = await asyncio.shield(task)  # a sibling that fails does not cut an effect off
        if value is SUSPENDED:
            self._waiting += 1
            self._moved.set()
            await _never()
        return value

    async def run(self, body: Coroutine[Any, Any, Any]) -> Any:
        """Run a body to its end, or until nothing in it can go on.

        Returns:
            What it returns, or `SUSPENDED`.

        Raises:
            Diverged: It does not ask again for what is recorded, and wants something new.
            BaseException: What it raises.
        """
        running = asyncio.create_task(body)
        diverged = False
        try:
            diverged = await self._follow(running)
            suspended, self._closed = self._closed, True
            if self._tasks:  # what is under way is not cut off
                await asyncio.gather(*map(asyncio.shield, self._tasks), return_exceptions=True)
        except asyncio.CancelledError:
            self._closed = True
            await _end(running, *self._tasks)
            raise
        self._raise_what_is_about_the_turn()
        if diverged:
            raise Diverged(
                f"{self.path!r} does not ask again for what it did before the pause: {self._missed()}",
                remedy="let its body depend on its params and the results of its calls alone, or start a new turn",
            )
        if suspended:
            if running.done() and not running.cancelled():
                running.exception()  # what a body says that was cut off does not count
            return SUSPENDED
        return running.result()

    # --- the body ---------------------------------------------------------------------------------------------------

    async def _follow(self, running: asyncio.Task[Any]) -> bool:
        """Wait for the body's end, or close the frame once nothing moves; whether it has diverged."""
        while not running.done():
            moved = asyncio.ensure_future(self._moved.wait())
            try:
                grace = self._grace()
                await asyncio.wait({running, moved}, return_when=asyncio.FIRST_COMPLETED, timeout=grace)
                still = not moved.done()
            finally:
                moved.cancel()
            self._moved.clear()
            if running.done() or not still or not self._stuck():
                continue
            if self._failures.held:
                self._failures.open.set()
                continue
            diverged = self._new.held > 0
            self._closed = True
            self._new.open.set()
            for _ in range(_ABANDONED):
                running.cancel()
                done, _ = await asyncio.wait({running}, timeout=_GRACE)
                if done:
                    break
            return diverged
        return False

    def _grace(self) -> float | None:
        if not self._stuck():
            return None
        return _LATE if self._new.held and not self._failures.held else _GRACE

    def _stuck(self) -> bool:
        return self._live == self._held and bool(self._waiting or self._held)

    def _missed(self) -> str:
        return ", ".join(repr(call_id.removeprefix(f"{self.path}/")) for call_id in sorted(self._unvisited)[:3])

    def _raise_what_is_about_the_turn(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                error = task.exception()
                if isinstance(error, ABOUT_THE_TURN):
                    raise error

    # --- one call ---------------------------------------------------------------------------------------------------

    async def _go(self, step: Step) -> Any:
        self._live += 1
        try:
            self._unvisited.discard(step.id)
            if not self._unvisited:
                self._caught_up.set()
            record = self.drive.recorded(step.id)
            over = record is not None and record.over
            if not (over and record is not None and record.state == "done") and not self._caught_up.is_set():
                await self._hold(self._failures if over else self._new)
                if self._closed:
                    return SUSPENDED
            return await self.drive.run(step)
        finally:
            self._live -= 1
            self._moved.set()

    async def _hold(self, lane: _Lane) -> None:
        self._held += 1
        lane.held += 1
        self._moved.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._caught_up, lane.open)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held -= 1
            lane.held -= 1
            for wait in waits:
                wait.cancel()


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end; one that swallows it is cancelled again, then left alone."""
    left = set(tasks)
    for _ in range(_ABANDONED):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=1)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
