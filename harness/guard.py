"""Run user code and replace any exception it raises, so that its message cannot leak into events or logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..core.errors import TaskFailed, UsageError, WorldAgentError
from .inside import Exited
from .journal import ABOUT_THE_TURN

T = TypeVar("T")

_LOG = logging.getLogger("worldagent.calls")

OnError = Callable[[BaseException], None]

_OF_ANOTHER_TURN = (UsageError, *ABOUT_THE_TURN)
"""Errors that would end this turn as well, although they are about another turn that the code began."""


def harmless(on_error: OnError) -> OnError:
    """Wrap `on_error` so that an exception it raises is logged by its type and does not replace the reported error."""

    def tell(problem: BaseException) -> None:
        try:
            on_error(problem)
        except Exception as error:  # broad: the host's callback can raise anything
            _LOG.warning("on_error failed with %s", type(error).__name__)

    return tell


async def guarded(running: Awaitable[T], *, what: str, on_error: OnError | None) -> T:
    """Wait for user code and raise a `TaskFailed` in place of its exceptions; `on_error` receives the original.

    A `WorldAgentError` passes through, unless it is in `_OF_ANOTHER_TURN` and comes from a turn that the code began.

    Args:
        running: The running code; the task that runs it goes through `kept_in`.
        what: What the code is, for the error.
        on_error: Receives the original exception.

    Raises:
        TaskFailed: The code raised another exception, was cancelled by something other than its caller, or tried to
            end the process.
    """
    problem: BaseException
    detail, remedy = "", "fix your code; the `on_error` of the agent receives the original exception"
    try:
        return await running
    except WorldAgentError as error:
        if error.turn_id is None or not isinstance(error, _OF_ANOTHER_TURN):
            raise
        problem, detail, remedy = error, f": {error.problem}", error.remedy
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        problem = error  # the caller is not being cancelled: something that the code waited for was cancelled
    except Exited as error:
        problem = error.original
    except Exception as error:  # broad: user code can raise anything; `on_error` receives it unchanged
        problem = error
    if on_error is not None:
        on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote a model's text
    raise TaskFailed(f"{what} failed{detail or f' with {kind}'}", remedy=remedy)
