"""A body that calls others, and how its calls are held in order when it runs again (D8).

A body that is replayed gets its history first: recorded results at once, recorded failures when all recorded calls were
asked for again, anything new only after that. Equal calls are told apart by where they are made (`_sites`). While a
person is asked, the `await` of the call simply does not return; once nothing in the body moves any more, the body is
cancelled. No exception that it could catch means "paused".
What one call does is `_drive`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NoReturn

from ...core import digest
from ...core.errors import Diverged, FunctionInvalid, InvalidArgument, WorldAgentError
from ...core.validation import is_text
from ..inside import Inside
from ._drive import ABOUT_THE_TURN, Drive
from ._sites import Sites
from ._steps import SUSPENDED, Step

_GRACE: Final = 0.02  # seconds without any movement after which a body that waits is taken to wait for a person
_LATE: Final = 2.0  # seconds after which a body that wants something new is taken to have forgotten what it did before
_ASIDE: Final = 30.0  # the same where the body has branches, since one may wait for something of its own
_BESIDE: Final = 0.5  # seconds without any movement after which a recorded failure of a branch is given to it
_PATIENCE: Final = 0.05  # seconds that a body may take to end once it is cancelled, before it is cancelled again
_EFFECT: Final = 1.0  # the same for what a body has called
_ABANDONED: Final = 5  # cancellations after which a body that swallows them is left alone
_LATECOMERS: Final = 50  # calls of tasks that outlive their body, after which those are left alone


@dataclass(slots=True)
class _Lane:
    """Calls that are held back, and what lets them through."""

    held: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call that equals others which have not been asked for again."""

    base: str
    look: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Frame:
    """What the calls of one body have in common.

    Args:
        drive: The turn's.
        path: The path id of the call whose body it is.
        depth: How deep it stands; the turn's own calls are 1.

    Attributes:
        cancelled: Whether nobody waits for the body any more, though it may still be running on a thread.
    """

    def __init__(self, drive: Drive, path: str, depth: int) -> None:
        self.drive = drive
        self.path = path
        self.depth = depth
        self._modelled = False
        self.cancelled = False
        self._tasks: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}
        self._waiting = self._live = self._held = 0
        self._closed = self._over = self._ended = False
        self._parked: set[asyncio.Future[None]] = set()
        self._late = 0
        self._aside = 0
        self._holding: set[asyncio.Task[Any] | None] = set()
        self._body: asyncio.Task[Any] | None = None
        self._error: WorldAgentError | None = None
        self._equals: deque[_Waiter] = deque()
        self._guesses = 0

    # Made when they are first wanted: a leaf calls nothing, and most calls are of leaves.

    @cached_property
    def _sites(self) -> Sites:
        return Sites(self.path, self.drive.recorded_below(self.path))

    @cached_property
    def _unvisited(self) -> set[str]:
        return {record.id for record in self.drive.recorded_below(self.path) if record.made}

    @cached_property
    def _caught_up(self) -> asyncio.Event:
        event = asyncio.Event()
        if not self._unvisited:
            event.set()
        return event

    @cached_property
    def _moved(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _failures(self) -> _Lane:
        return _Lane()

    @cached_property
    def _new(self) -> _Lane:
        return _Lane()

    @property
    def modelled(self) -> bool:
        """Whether a model has had a say in what the body calls from now on."""
        return self._modelled

    def hear(self) -> None:
        """A model has a say in what the body calls from now on, and in what it gives."""
        self._modelled = True
        self.drive.hears(self.path)

    async def child(
        self, name: str, data: object, key: str | None = None, *, text: str | None = None
    ) -> tuple[str, str]:
        """The path id of the next call of `name` with this input, and its site; equal ones are numbered.

        One that equals recorded calls, none of which was made where the caller stands, waits until those have been
        asked for. It is new then, or takes what is left once nothing else moves.

        Args:
            name: What is called.
            data: Its input as JSON.
            key: Tells it from calls with equal input.
            text: The input as canonical JSON, where that is there already.

        Raises:
            InvalidArgument: `key` is no text.
            FunctionInvalid: The body has come to its end.
        """
        if self._ended:
            await asyncio.sleep(_GRACE)  # one that tries again and again does not hold up the others
            raise FunctionInvalid(
                f"the call {self.path!r} is over, and {name!r} cannot be called from it",
                remedy="call it before its body ends, or with agent.call",
            )
        if key is not None and not is_text(key):
            raise InvalidArgument(f"key of a call of {name!r} is no text", remedy="give key a text, or leave it out")
        mark = digest(data, length=12, text=text) if key is None else _escaped(key)
        base = f"{self.path}/{name}:{mark}"
        site = self._sites.here(base, aside=self._is_aside())
        call_id = self._sites.take(base, site, any_left=self._body is None)
        while call_id is None:
            if self._closed:
                await self._park()
            any_left = await self._wait_for_equals(base)
            call_id = None if self._closed else self._sites.take(base, site, any_left=any_left)
        if self._equals and not self._sites.left(base):
            self._wake([waiter for waiter in self._equals if waiter.base == base])
        return call_id, site

    async def do(self, step: Step) -> Any:
        """Do a step for the body. Where a person is asked, this does not return in this run.

        Raises:
            FunctionInvalid: It is a leaf that asks.
            WorldAgentError: What the step raised.
        """
        inside = Inside.now()
        if inside is not None and inside.leaf:
            raise FunctionInvalid(
                f"the leaf {inside.name!r} calls {step.name!r}", remedy="make it a @flow, and its own effects leaves"
            )
        try:
            value = await self._asked(step)
        except ABOUT_THE_TURN as error:
            self._closed, self._error = True, error  # whatever the body would make of it, it does nothing more
            value = SUSPENDED
        if value is SUSPENDED:
            self._waiting += 1
            self._moved.set()
            try:
                await self._park()
            finally:
                self._waiting -= 1  # its caller was cancelled, by a sibling that failed or by the end of the body
        return value

    async def direct(self, step: Step) -> Any:
        """Do a step for one who keeps the order of its calls itself, and is told where it waits.

        Returns:
            Its result as JSON, or `SUSPENDED`.

        Raises:
            WorldAgentError: What the step raised.
        """
        self._unvisited.discard(step.id)
        return await self.drive.run(step)

    def end(self) -> None:
        """Nothing is called from here any more: the body, which `run` did not get, is over."""
        self._closed = self._over = self._ended = True

    async def run(self, body: Coroutine[Any, Any, Any]) -> Any:
        """Run a body to its end, or until nothing in it can go on.

        Returns:
            What it returns, or `SUSPENDED`.

        Raises:
            Diverged: It does not ask again for what is recorded, and wants something new.
            BaseException: What it raises.
        """
        running = self._body = asyncio.create_task(body)
        diverged = False
        try:
            diverged = await self._follow(running)
            suspended, self._closed = self._closed, True
            self._ended = not suspended
            self._let_go()
            if self._tasks:  # what is under way is not cut off
                await asyncio.gather(*map(asyncio.shield, tuple(self._tasks)), return_exceptions=True)
        except asyncio.CancelledError:
            self._closed = self._ended = True
            await _end([running], patience=_PATIENCE)
            called = dict(self._tasks)
            await _end(tuple(called), patience=_EFFECT)
            for landed in called.values():
                landed.cancel()  # of one that did not even begin
            raise
        finally:
            await self._sweep()
        if self._error is not None:
            raise self._error
        if diverged or (not suspended and self._forgotten(running)):
            raise Diverged(
                f"{self.path!r} does not ask again for what it did before the pause: {self._missed()}",
                remedy="let its body depend on its params and the results of its calls alone, or start a new turn",
            )
        if suspended:
            if running.done() and not running.cancelled():
                running.exception()  # what a body says that was cut off does not count
            return SUSPENDED
        self._body = None  # its context holds the frame: a cycle, which only the collector would free
        return running.result()

    # --- the body ---------------------------------------------------------------------------------------------------

    async def _follow(self, running: asyncio.Task[Any]) -> bool:
        """Wait for the body's end, or close the frame once nothing moves; whether it has diverged."""
        while not running.done():
            still = await self._still(running)
            if running.done() or not (self._closed or (still and self._stuck())):
                continue
            if self._failures.held and not self._closed:
                self._failures.open.set()
                continue
            if self._equals and not self._closed:
                self._guesses = self._guesses * 2 or 1  # one by one would take its time where all are from elsewhere
                self._wake(tuple(self._equals)[: self._guesses], any_left=True)
                continue
            diverged = self._new.held > 0 and not self._closed
            self._closed = True
            self._let_go()
            if await _end([running], patience=_PATIENCE):
                raise asyncio.CancelledError
            return diverged
        return False

    async def _still(self, running: asyncio.Task[Any]) -> bool:
        """Wait until something moves; whether nothing has for a while."""
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({running, moved}, return_when=asyncio.FIRST_COMPLETED, timeout=self._grace())
            return not moved.done()
        finally:
            moved.cancel()
            self._moved.clear()

    def _grace(self) -> float | None:
        if not self._stuck():
            return None
        if self._failures.held:
            return _BESIDE if self._aside else _GRACE
        if not (self._equals or self._new.held) or (self._equals and self._guesses):
            return _GRACE
        return _ASIDE if self._aside or self._sites.any_aside(self._unvisited) else _LATE

    def _is_aside(self) -> bool:
        """Whether the caller is a task that the body has made, and not the body itself."""
        return asyncio.current_task() is not self._body

    def _stuck(self) -> bool:
        return self._live == self._held and bool(self._waiting or self._held)

    def _missed(self) -> str:
        return ", ".join(repr(call_id.removeprefix(f"{self.path}/")) for call_id in sorted(self._unvisited)[:3])

    def _let_go(self) -> None:
        """Nobody waits any more for the calls that are held back, and none of them is made."""
        self._failures.open.set()
        self._new.open.set()
        self._wake(tuple(self._equals))

    def _wake(self, waiters: Iterable[_Waiter], *, any_left: bool = False) -> None:
        """Let calls that wait for their equals look again, at all that is left if so."""
        for waiter in waiters:
            self._equals.remove(waiter)
            if not waiter.look.done():  # its caller was cancelled
                waiter.look.set_result(any_left)

    def _forgotten(self, running: asyncio.Task[Any]) -> bool:
        """Whether a body came to its end without what a person was asked for it, which it cannot have done before."""
        if running.cancelled():
            return False
        records = [self.drive.recorded(call_id) for call_id in self._unvisited]
        return any(record is not None and (record.open or record.answered) for record in records)

    async def _asked(self, step: Step) -> Any:
        aside = self._is_aside()
        self._live += 1  # it is on its way
        try:
            await self.drive.settle(self.path)
        finally:
            self._live -= 1
            self._moved.set()
        if self._closed:
            await self._park()
        landed = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._go(step, aside, landed))
        self._tasks[task] = landed
        try:
            return await landed  # and not the task: a sibling that fails does not cut an effect off
        except asyncio.CancelledError:
            if task in self._holding:  # it has not begun, and nobody wants it any more
                task.cancel()
            raise

    async def _park(self) -> NoReturn:
        """Not return in this run. Tasks that the body has left here are cancelled once it is over."""
        loop = asyncio.get_running_loop()
        parked = loop.create_future()
        self._parked.add(parked)
        if self._over and self._late < _LATECOMERS:
            self._late += 1
            loop.call_later(_GRACE, parked.cancel)
        try:
            await parked
        finally:
            self._parked.discard(parked)
        raise AssertionError("nobody sets this future")

    async def _sweep(self) -> None:
        """End the tasks that the body has made and left waiting."""
        self._over = True
        left = tuple(self._parked)
        for parked in left:
            parked.cancel()
        if left:
            await asyncio.sleep(0)

    # --- one call ---------------------------------------------------------------------------------------------------

    async def _go(self, step: Step, aside: bool, landed: asyncio.Future[Any]) -> None:
        """Do a step, and tell its caller what came of it, if that still waits."""
        self._live += 1
        try:
            value = await self._done(step, aside)
            if not landed.done():
                landed.set_result(value)
        except Exception as error:  # not by name: what the step raises is its caller's, as with no task between
            if isinstance(error, ABOUT_THE_TURN):
                self._error = self._error or error  # also where nobody waits
            if not landed.done():
                landed.set_exception(error)
        finally:
            landed.cancel()  # where it was cut off; one that has landed stays as it is
            self._live -= 1
            self._moved.set()
            self._tasks.pop(asyncio.current_task(), None)  # type: ignore[arg-type]  # it runs as a task

    async def _done(self, step: Step, aside: bool) -> Any:
        self._unvisited.discard(step.id)
        if not self._unvisited:
            self._caught_up.set()
        record = self.drive.recorded(step.id)
        done = record is not None and record.state == "done"
        if not done and not self._caught_up.is_set():
            await self._hold(self._failures if record is not None and record.over else self._new, aside)
            if self._closed:
                return SUSPENDED
        return await self.drive.run(step)

    async def _hold(self, lane: _Lane, aside: bool) -> None:
        this = asyncio.current_task()
        self._holding.add(this)
        self._held += 1
        self._aside += aside
        lane.held += 1
        self._moved.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._caught_up, lane.open)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held -= 1
            self._aside -= aside
            self._holding.discard(this)
            lane.held -= 1
            if not lane.held and not self._closed:
                lane.open.clear()  # what fails later waits again for what was asked for before it
            for wait in waits:
                wait.cancel()

    async def _wait_for_equals(self, base: str) -> bool:
        """Wait until a call has found its place, or nothing moves; whether the caller may take any that is left."""
        waiter = _Waiter(base)
        aside = self._is_aside()
        self._equals.append(waiter)
        self._live += 1
        self._held += 1
        self._aside += aside
        self._moved.set()
        try:
            return await waiter.look
        finally:
            if waiter in self._equals:
                self._equals.remove(waiter)
            self._live -= 1
            self._held -= 1
            self._aside -= aside
            self._moved.set()


def _escaped(key: str) -> str:
    """A key as part of a path id: a slash begins what stands below a call, a dot the number of an equal one."""
    return key.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")


async def _end(tasks: Sequence[asyncio.Task[Any]], *, patience: float) -> bool:
    """Cancel tasks and wait for their end; one that swallows it is cancelled again, then left alone.

    Returns:
        Whether the one who waits was cancelled meanwhile, which leaves none of them behind.
    """
    cancelled = False
    for _ in range(_ABANDONED):
        left = {task for task in tasks if not task.done()}
        if not left:
            break
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=patience)
        except asyncio.CancelledError:
            cancelled = True
        patience *= 2
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
    return cancelled
