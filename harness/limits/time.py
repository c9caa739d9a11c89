"""Cutting off what takes too long, and trying again what failed in passing. What may take how long is said elsewhere.

`stamina`, which retries model calls, sleeps by the machine's clock and tells of a retry through hooks of the whole
process. Here the clock is the agent's, and each retry is an event of its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from anyio.lowlevel import RunVar

from ...core import Clock
from ...core.errors import CallTimeout, TaskFailed, WorldAgentError
from .retry import Retry

T = TypeVar("T")

PATIENCE: Final = 0.5
"""Seconds that a leaf may take to end once it is cancelled; after that it is left alone."""

_LOG = logging.getLogger("worldagent.calls")
_LEFT: RunVar[set[asyncio.Task[Any]]] = RunVar("worldagent_left_alone")  # asyncio keeps no task alive by itself


async def in_time(
    running: Coroutine[Any, Any, T],
    time: Coroutine[Any, Any, None] | None,
    *,
    what: str,
    late: Callable[[], WorldAgentError],
    patience: float | None = None,
    cut: Callable[[], None] = lambda: None,
) -> T:
    """Wait for something, for so long and no longer, even if it swallows its cancellation.

    Args:
        running: What is waited for; it runs as a task of its own.
        time: Ends when its time is over, such as `clock.sleep(seconds)`; None is never.
        what: What it is, for the log.
        late: Makes the error where it takes longer.
        patience: Seconds that it may take to end once it is cancelled, before it is left alone; None is as long as it
            takes.
        cut: Is called before it is cancelled.

    Raises:
        WorldAgentError: `late()`, where the time is over.
        BaseException: What it raises.
    """
    over = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_told(running, over))
    watch = None if time is None else asyncio.ensure_future(time)
    if watch is not None:
        watch.add_done_callback(lambda _: _tell(over))
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
            running.close()  # where it was not begun
    if task.done():
        return task.result()
    cut()
    if await _stop(task, what, patience):
        raise asyncio.CancelledError
    raise late()


async def _told(running: Coroutine[Any, Any, T], over: asyncio.Future[None]) -> T:
    """Tell at its very end that it is over: to wait for its task would take the loop another round."""
    try:
        return await running
    finally:
        _tell(over)


def _tell(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _stop(task: asyncio.Task[Any], what: str, patience: float | None) -> bool:
    """Cancel a task and wait for its end; whether the one who waits was cancelled meanwhile."""
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
        _leave_alone(task, what)
    elif not task.cancelled():
        task.exception()  # nobody waits for what it says
    return cancelled


def _leave_alone(task: asyncio.Task[Any], what: str) -> None:
    _LOG.warning("%s goes on though it was cancelled; nobody waits for it any more", what)
    try:
        left = _LEFT.get()
    except LookupError:
        left = set[asyncio.Task[Any]]()
        _LEFT.set(left)

    def over(task: asyncio.Task[Any]) -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()

    left.add(task)
    task.add_done_callback(over)


async def tried(
    run: Callable[[], Awaitable[T]], retry: Retry, clock: Clock, *, tell: Callable[[int, str, float], None]
) -> T:
    """Do something until it works, fails for good, or was tried often enough.

    Args:
        run: Does it.
        retry: How often, and how long to wait.
        clock: Tells the time.
        tell: Gets the number of each further try, the code of what went wrong, and the seconds until then.

    Raises:
        WorldAgentError: What the last try raised.
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


__all__ = ["PATIENCE", "in_time", "tried"]
