"""Somebody's code under way: what it raises of its own is told without what it says."""

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
"""What would end this turn, too, though it was about a turn that the code began."""


def harmless(on_error: OnError) -> OnError:
    """Wrap `on_error` so that an exception it raises is logged by its type and does not replace the reported error."""

    def tell(problem: BaseException) -> None:
        try:
            on_error(problem)
        except Exception as error:  # not by name: the host's own callback can raise anything
            _LOG.warning("on_error failed with %s", type(error).__name__)

    return tell


async def guarded(running: Awaitable[T], *, what: str, on_error: OnError | None) -> T:
    """Wait for somebody's code; what it raises of its own becomes a `TaskFailed`, and `on_error` gets the original.

    So does what another turn failed with that it began, unless whoever called is to be told of that as it is.

    Args:
        running: The code under way; the task that runs it goes through `kept_in`.
        what: What it is, for the error.
        on_error: Gets the original.
    """
    problem: BaseException
    told, remedy = "", "mend it where the agent is made; its `on_error` gets the original"
    try:
        return await running
    except WorldAgentError as error:
        if error.turn_id is None or not isinstance(error, _OF_ANOTHER_TURN):
            raise
        problem, told, remedy = error, f": {error.problem}", error.remedy
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        problem = error  # nobody cancels the caller: something that the code waited for was cancelled
    except Exited as error:
        problem = error.original
    except Exception as error:  # not by name: somebody's code may raise anything; `on_error` gets it as it is
        problem = error
    if on_error is not None:
        on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote what a model said
    raise TaskFailed(f"{what} failed{told or f' with {kind}'}", remedy=remedy)


__all__ = ["OnError", "guarded", "harmless"]
