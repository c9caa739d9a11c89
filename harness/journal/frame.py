"""Runs a body that calls others, and keeps its calls in order when it runs again (D8).

A replayed body gets its history first. Recorded results return at once, recorded failures after all recorded calls were
made again, and new calls run only after that. Equal calls are numbered in the order they are made. Two equal calls that
run concurrently have no order, so the second one is refused unless a key distinguishes them (decision 0079).

While a call waits for a person, its `await` does not return; when nothing in the body moves any more, the body is
cancelled. No exception that the body could catch means "paused". `drive` runs each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NoReturn

from ...core import digest
from ...core.errors import Diverged, FunctionInvalid, InvalidArgument, WorldAgentError
from ...core.validation import is_text
from ..inside import Inside
from .drive import ABOUT_THE_TURN, Drive
from .pauses import SUSPENDED, Step

# Seconds without any movement in the body, after which
_STILL_SECONDS: Final = 0.02  # a waiting body counts as waiting for a person,
_DIVERGED_SECONDS: Final = 2.0  # a body with a new call counts as diverged from its recorded calls,
_BRANCH_DIVERGED_SECONDS: Final = 30.0  # the same for a body with branches, which may wait for something else,
_BRANCH_FAILURE_SECONDS: Final = 0.5  # a branch gets its recorded failure.
# Seconds that a cancelled body, or a cancelled call of it, can take to end before it is cancelled again.
_BODY_END_SECONDS: Final = 0.05
_EFFECT_END_SECONDS: Final = 1.0
_MAX_CANCELLATIONS: Final = 5  # of a body that swallows them; then it is abandoned
_MAX_LATE_CALLS: Final = 50  # by tasks that outlive their body; then these tasks are abandoned


@dataclass(slots=True)
class _Held:
    """A call that waits for the body's history; with `failed` its failure is recorded, otherwise the call is new."""

    failed: bool
    branch: bool
    go: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Frame:
    """Runs one body and keeps its calls in order.

    Args:
        drive: The run of the turn.
        path: The path id of the call whose body it is.
        depth: How deep the call is nested; the turn's own calls are at 1.

    Attributes:
        cancelled: Whether the body was cancelled; it may still be running on a thread.
    """

    def __init__(self, drive: Drive, path: str, depth: int) -> None:
        self.drive = drive
        self.path = path
        self.depth = depth
        self._model_influenced = False
        self.cancelled = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting = self._live = 0
        self._closed = self._over = self._ended = False
        self._parked: set[asyncio.Future[None]] = set()
        self._late = 0
        self._held: dict[asyncio.Task[Any] | None, _Held] = {}
        self._body: asyncio.Task[Any] | None = None
        self._error: WorldAgentError | None = None
        self._numbers: dict[str, int] = {}
        self._running: dict[str, str] = {}

    # Cached properties, because most calls are of leaves, which call nothing.

    @cached_property
    def _unvisited(self) -> set[str]:
        return {record.id for record in self.drive.recorded_below(self.path) if record.made}

    @cached_property
    def _moved(self) -> asyncio.Event:
        return asyncio.Event()

    @property
    def model_influenced(self) -> bool:
        """Whether a model has influenced what the body calls from now on."""
        return self._model_influenced

    def mark_model_influenced(self) -> None:
        """Take note that a model has influenced what the body calls from now on, and what it returns."""
        self._model_influenced = True
        self.drive.mark_model_influenced_body(self.path)

    async def child(
        self, name: str, data: object, key: str | None = None, *, text: str | None = None, model: bool = False
    ) -> str:
        """Make the path id of the next call of `name` with this input; equal calls are numbered in order.

        Args:
            name: The name that is called.
            data: Its input as JSON.
            key: Distinguishes the call from calls with equal input.
            text: The input as canonical JSON, if the caller already has it.
            model: Whether it is a model call. Equal model calls can run concurrently, because they have no effects: it
                does no harm if a replay swaps their answers.

        Raises:
            InvalidArgument: `key` is not a text, or an equal call with the same key is running.
            FunctionInvalid: The body has ended.
        """
        if self._ended:
            # so that a loop which calls again and again cannot block the event loop
            await asyncio.sleep(_STILL_SECONDS)
            raise FunctionInvalid(
                f"the call {self.path!r} is over, and {name!r} cannot be called from it",
                remedy="call it before its body ends, or with agent.call",
            )
        if key is not None and not is_text(key):
            raise InvalidArgument(f"`key` of a call of {name!r} must be a text", remedy="pass a text, or omit it")
        if self._closed:
            await self._park()
        mark = digest(data, length=12, text=text) if key is None else _escaped(key)
        base = f"{self.path}/{name}:{mark}"
        number = self._numbers.get(base, 0)
        call_id = f"{base}.{number}" if number else base
        record = self.drive.recorded(call_id)
        # A recorded call was accepted before: it came after the other one, or an earlier version allowed equal calls.
        if record is None and base in self._running and not model:
            await self._refuse(name, key)
        self._numbers[base] = number + 1
        if record is None or not record.over:
            self._running[base] = call_id
        return call_id

    def release(self, call_id: str) -> None:
        """Take note that nothing waits for this call of `child` any more, so that an equal call can be made."""
        head, _, mark = call_id.rpartition(":")
        base = f"{head}:{mark.partition('.')[0]}"  # digests and keys have no dot
        if self._running.get(base) == call_id:
            del self._running[base]

    async def do(self, step: Step) -> Any:
        """Run a step for the body. If the step waits for a person, this does not return in this run.

        Raises:
            FunctionInvalid: The body is a leaf.
            WorldAgentError: The error of the step.
        """
        inside = Inside.now()
        if inside is not None and inside.leaf:
            raise FunctionInvalid(
                f"the leaf {inside.name!r} cannot call {step.name!r}",
                remedy="make it a @flow, and move its own effects into leaves",
            )
        try:
            value = await self._asked(step)
            return value if value is not SUSPENDED else await self._wait()
        except ABOUT_THE_TURN as error:
            await self._give_up(error)
        finally:
            self.release(step.id)

    async def direct(self, step: Step) -> Any:
        """Run a step for a caller that keeps its calls in order itself and handles `SUSPENDED`.

        Returns:
            Its result as JSON, or `SUSPENDED`.

        Raises:
            WorldAgentError: The error of the step.
        """
        self._unvisited.discard(step.id)
        return await self.drive.run(step)

    def end(self) -> None:
        """Refuse further calls, because the body, which did not go through `run`, has ended."""
        self._closed = self._over = self._ended = True

    async def run(self, body: Coroutine[Any, Any, Any]) -> Any:
        """Run a body to its end, or until nothing in it can continue.

        Returns:
            The result of the body, or `SUSPENDED`.

        Raises:
            Diverged: It makes new calls, but does not repeat the recorded ones.
            BaseException: The exception of the body.
        """
        running = self._body = asyncio.create_task(body)
        diverged = False
        try:
            diverged = await self._follow(running)
            suspended, self._closed = self._closed, True
            self._ended = not suspended
            self._release_held()
            if self._tasks:  # running calls are not interrupted
                await asyncio.gather(*map(asyncio.shield, tuple(self._tasks)), return_exceptions=True)
        except asyncio.CancelledError:
            self._closed = self._ended = self.cancelled = True
            await _end([running], patience=_BODY_END_SECONDS)
            await _end(tuple(self._tasks), patience=_EFFECT_END_SECONDS)
            raise
        finally:
            await self._sweep()
        if self._error is not None:
            raise self._error
        if diverged or (not suspended and self._skipped_pauses(running)):
            raise Diverged(
                f"{self.path!r} does not repeat the calls that it made before the pause: {self._missed()}",
                remedy="let its body depend only on its params and the results of its calls, or start a new turn",
            )
        if suspended:
            if running.done() and not running.cancelled():
                running.exception()  # retrieved, so that asyncio does not log it: it does not count
            return SUSPENDED
        self._body = None  # its context holds the frame: a cycle that only the garbage collector would free
        return running.result()

    # --- the body ---------------------------------------------------------------------------------------------------

    async def _follow(self, running: asyncio.Task[Any]) -> bool:
        """Wait for the body's end, or close the frame when nothing moves; return whether the body has diverged."""
        while not running.done():
            still = await self._still(running)
            if running.done() or not (self._closed or (still and self._stuck())):
                continue
            if not self._closed and self._release_held(failed=True):
                continue
            diverged = bool(self._held) and not self._closed
            self._closed = True
            self._release_held()
            if await _end([running], patience=_BODY_END_SECONDS):
                raise asyncio.CancelledError
            return diverged
        return False

    async def _still(self, running: asyncio.Task[Any]) -> bool:
        """Wait until something moves; return whether nothing has moved for a while."""
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
        if not self._held:
            return _STILL_SECONDS
        branch = any(held.branch for held in self._held.values())
        if any(held.failed for held in self._held.values()):
            return _BRANCH_FAILURE_SECONDS if branch else _STILL_SECONDS
        return _BRANCH_DIVERGED_SECONDS if branch else _DIVERGED_SECONDS

    def _stuck(self) -> bool:
        return self._live == len(self._held) and bool(self._waiting or self._held)

    def _missed(self) -> str:
        return ", ".join(repr(call_id.removeprefix(f"{self.path}/")) for call_id in sorted(self._unvisited)[:3])

    def _release_held(self, *, failed: bool = False) -> bool:
        """Release the held calls, or only those with a recorded failure; return whether there were any."""
        found = [held for held in self._held.values() if not held.go.done() and (held.failed or not failed)]
        for held in found:
            held.go.set_result(None)
        return bool(found)

    def _skipped_pauses(self, running: asyncio.Task[Any]) -> bool:
        """Whether a body ended without repeating a call that waits for a person; it must have diverged then."""
        if running.cancelled():
            return False
        records = [self.drive.recorded(call_id) for call_id in self._unvisited]
        return any(record is not None and (record.open or record.answered) for record in records)

    async def _asked(self, step: Step) -> Any:
        branch = asyncio.current_task() is not self._body  # the call comes from a task that the body has started
        self._live += 1  # counts as movement while it settles
        try:
            await self.drive.settle(self.path)
        finally:
            self._live -= 1
            self._moved.set()
        if self._closed:
            await self._park()
        task = asyncio.create_task(self._go(step, branch))
        self._tasks.add(task)
        task.add_done_callback(self._landed)
        try:
            return await asyncio.shield(task)  # a sibling that fails does not interrupt an effect
        except asyncio.CancelledError:
            if task in self._held:  # it has not begun, and its caller was cancelled
                task.cancel()
            raise

    def _landed(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise asyncio would log the error of a call whose caller was cancelled

    async def _refuse(self, name: str, key: str | None) -> NoReturn:
        """Refuse a call while an equal one runs, and end the body: in a replay the call might not be refused."""
        which = "two equal calls" if key is None else f"two calls with the key {key!r}"
        error = InvalidArgument(
            f"{which} of {name!r} run at the same time in {self.path!r}, and a turn that resumes could not tell which "
            "result belongs to which",
            remedy="give each call a different `key=`, such as its place in the list, or make them one after the other",
        )
        if self._body is None:
            raise error
        await self._give_up(error)

    async def _give_up(self, error: WorldAgentError) -> NoReturn:
        """End the body with this error; the body cannot catch it."""
        self._closed, self._error = True, error
        await self._wait()

    async def _wait(self) -> NoReturn:
        """Wait for a person, or for the end of the body; never returns."""
        self._waiting += 1
        self._moved.set()
        try:
            await self._park()
        finally:
            self._waiting -= 1  # its caller was cancelled, because a sibling failed or the body ended

    async def _park(self) -> NoReturn:
        """Never return in this run. Tasks of the body that still wait here are cancelled after the body ended."""
        loop = asyncio.get_running_loop()
        parked = loop.create_future()
        self._parked.add(parked)
        if self._over and self._late < _MAX_LATE_CALLS:
            self._late += 1
            loop.call_later(_STILL_SECONDS, parked.cancel)
        try:
            await parked
        finally:
            self._parked.discard(parked)
        raise AssertionError("this future is never set")

    async def _sweep(self) -> None:
        """End the tasks that the body has started and that still wait."""
        self._over = True
        left = tuple(self._parked)
        for parked in left:
            parked.cancel()
        if left:
            await asyncio.sleep(0)

    # --- one call ---------------------------------------------------------------------------------------------------

    async def _go(self, step: Step, branch: bool) -> Any:
        self._live += 1
        try:
            return await self._done(step, branch)
        except ABOUT_THE_TURN as error:
            self._error = self._error or error  # even if its caller was cancelled
            raise
        finally:
            self._live -= 1
            self._moved.set()

    async def _done(self, step: Step, branch: bool) -> Any:
        self._unvisited.discard(step.id)
        if not self._unvisited:
            self._release_held()
        record = self.drive.recorded(step.id)
        failed = record is not None and record.over
        if self._unvisited and (record is None or record.state != "done"):
            if not self._closed:
                await self._hold(_Held(failed, branch))
            if self._closed:
                return SUSPENDED
        return await self.drive.run(step)

    async def _hold(self, held: _Held) -> None:
        this = asyncio.current_task()
        self._held[this] = held
        self._moved.set()
        try:
            await held.go
        finally:
            del self._held[this]


def _escaped(key: str) -> str:
    """Escape a key for a path id, where a slash separates nested calls and a dot precedes a call's number."""
    return key.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")


async def _end(tasks: Sequence[asyncio.Task[Any]], *, patience: float) -> bool:
    """Cancel tasks and wait for their end; a task that swallows its cancellation is cancelled again, then abandoned.

    Returns:
        Whether the waiting task was cancelled meanwhile; even then all tasks are cancelled.
    """
    cancelled = False
    for _ in range(_MAX_CANCELLATIONS):
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
