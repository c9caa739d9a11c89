"""Runs a turn for code that cannot await it, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.errors import AgentClosed, CapabilityFailed
from .requests import Request
from .thread import Thread
from .turns import Turn

if TYPE_CHECKING:
    from .agent import WorldAgent

T = TypeVar("T")


def run_alone(agent: WorldAgent, thread: Thread, request: Request) -> Turn:
    """Open an agent for one turn, run the turn and close the agent; see `WorldAgent.run_sync`."""
    return in_own_loop(lambda: _run(agent, thread, request))


async def _run(agent: WorldAgent, thread: Thread, request: Request) -> Turn:
    if agent.is_open or not agent._alone.acquire(blocking=False):
        raise AgentClosed(
            f"{agent!r} is open already, and an agent belongs to the event loop that opened it",
            remedy="await thread.run(...) in that loop, or close it first; make an agent for each thread",
        )
    done: Turn | None = None
    try:
        async with agent:
            turn = asyncio.ensure_future(thread.run(request))
            try:
                await asyncio.wait({turn})
            except asyncio.CancelledError:  # a drain lets the turn stop where it can resume
                await agent.drain()
                await asyncio.gather(turn, return_exceptions=True)
                raise
            done = turn.result()
    except CapabilityFailed:
        if done is None:
            raise
    finally:
        agent._alone.release()
    assert done is not None, "what ends a turn without a result raises"
    return done  # also if a capability raised as the agent closed: `on_error` has that


def in_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also where an event loop runs, which waits meanwhile.

    It has the context variables of the caller, so a turn that it begins knows the call that it is inside of.

    Args:
        work: Makes the coroutine.

    Raises:
        KeyboardInterrupt: The coroutine was cancelled because of it, and has ended.
    """
    begun = Future[Callable[[], object]]()

    async def run() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work()

    with ThreadPoolExecutor(1, thread_name_prefix="worldagent-sync") as thread:
        ended = thread.submit(copy_context().run, lambda: asyncio.run(run()))
        ended.add_done_callback(lambda _: begun.cancel())  # if it has not begun by then, it never does
        try:
            return ended.result()
        except KeyboardInterrupt:
            with suppress(CancelledError, RuntimeError):  # it has ended by itself
                begun.result()()
            raise
