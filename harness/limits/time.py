"""Time limits and retries. The callers say how long and how often.

`stamina`, which retries model calls, sleeps by the machine's clock and reports retries through process-wide hooks. This
module uses the agent's clock, and each retry is an event of its turn.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from anyio.lowlevel import RunVar

from ...core import Clock
from ...core.errors import CallTimeout, FunctionInvalid, TaskFailed, WorldAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a function is tried. The author of the function decides that it is safe to run it again.

    Attributes:
        attempts: The most attempts, including the first; 1 to 20.
        backoff: Seconds before the second attempt; doubles before each further one.
        longest: The most seconds between two attempts.
    """

    attempts: int = 1
    backoff: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and not isinstance(self.attempts, bool) and 1 <= self.attempts <= 20):
            raise FunctionInvalid(
                f"`attempts` must be an integer from 1 to 20, got {self.attempts!r}",
                remedy="pass an integer in this range",
            )
        numbers = all(
            isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
            for each in (self.backoff, self.longest)
        )
        if not (numbers and 0 <= self.backoff <= self.longest):
            raise FunctionInvalid(
                f"`backoff` must be a number of seconds from 0 to `longest`, got {self.backoff!r}",
                remedy="pass numbers with 0 <= backoff <= longest",
            )

    def delay(self, attempt: int) -> float:
        """Return the seconds before the attempt numbered `attempt`, counted from 1."""
        return min(self.longest, self.backoff * 2.0 ** (attempt - 2)) if attempt > 1 else 0.0


T = TypeVar("T")

LEAF_END_SECONDS: Final = 0.5
"""Seconds that a cancelled leaf can take to end; after that it is abandoned."""

_LOG = logging.getLogger("worldagent.calls")
_ABANDONED: RunVar[set[asyncio.Task[Any]]] = RunVar("worldagent_left_alone")  # asyncio keeps no task alive by itself


async def with_timeout(
    running: Coroutine[Any, Any, T],
    time: Coroutine[Any, Any, None] | None,
    *,
    what: str,
    late: Callable[[], WorldAgentError],
    patience: float | None = None,
    cut: Callable[[], None] = lambda: None,
) -> T:
    """Wait for a coroutine within a time limit, even if it swallows its cancellation.

    Args:
        running: The coroutine; it runs as its own task.
        time: Ends when the time is over, such as `clock.sleep(seconds)`; None sets no limit.
        what: What the coroutine is, for the log.
        late: Makes the error for a timeout.
        patience: Seconds that the task can take to end after its cancellation, before it is abandoned; None waits
            until it ends.
        cut: Is called before the task is cancelled.

    Raises:
        WorldAgentError: `late()`, if the time is over.
        BaseException: The exception that the coroutine raises.
    """
    over = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_signal_end(running, over))
    watch = None if time is None else asyncio.ensure_future(time)
    if watch is not None:
        watch.add_done_callback(lambda _: _set_done(over))
    try:
        await over
    except asyncio.CancelledError:
        cut()
        await _stop(task, what, patience)
        raise
    finally:
        if watch is not None:
            watch.cancel()
        if task.done():
            running.close()  # if the task never started it
    if task.done():
        return task.result()
    cut()
    if await _stop(task, what, patience):
        raise asyncio.CancelledError
    raise late()


async def _signal_end(running: Coroutine[Any, Any, T], over: asyncio.Future[None]) -> T:
    """Set `over` at the very end of the coroutine: waiting for its task would take one more round of the loop."""
    try:
        return await running
    finally:
        _set_done(over)


def _set_done(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _stop(task: asyncio.Task[Any], what: str, patience: float | None) -> bool:
    """Cancel a task and wait for its end; return whether the waiting task was cancelled meanwhile."""
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task], timeout=patience)
        except asyncio.CancelledError:
            cancelled = True
            task.cancel()
        if patience is not None:
            break
    if not task.done():
        _abandon(task, what)
    elif not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
    return cancelled


def _abandon(task: asyncio.Task[Any], what: str) -> None:
    _LOG.warning("%s is still running after its cancellation; its result will be dropped", what)
    try:
        left = _ABANDONED.get()
    except LookupError:
        left = set[asyncio.Task[Any]]()
        _ABANDONED.set(left)

    def over(task: asyncio.Task[Any]) -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()

    left.add(task)
    task.add_done_callback(over)


async def retry_call(
    run: Callable[[], Awaitable[T]], retry: Retry, clock: Clock, *, tell: Callable[[int, str, float], None]
) -> T:
    """Run something again after transient failures, until it succeeds or the attempts are used up.

    Args:
        run: Makes one attempt.
        retry: How often to try, and how long to wait.
        clock: The clock to wait by.
        tell: Receives the number of each further attempt, the code of the last error, and the seconds until then.

    Raises:
        WorldAgentError: The error of the last attempt.
    """
    attempt = 1
    while True:
        try:
            return await run()
        except WorldAgentError as error:
            if attempt >= retry.attempts or not (error.retryable or isinstance(error, TaskFailed | CallTimeout)):
                raise
            code = error.code
        attempt += 1
        seconds = retry.delay(attempt)
        tell(attempt, code, seconds)
        await clock.sleep(seconds)
