"""Follows the task of a server that goes on with a call (T5). `rounds` has the call, `tasks` what is on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import HostError, McpServerUnavailable, ToolFailed
from ...harness import CallContext
from ...harness.journal import SUSPENDED, Suspended
from .server import Progress, RemoteTask, ToolAnswer

if TYPE_CHECKING:
    from .source import McpSource

_OUTAGE_WAIT: Final = 0.5  # seconds between two tries of a server that cannot be reached


class CallTask:
    """The task of a call, if the server has made one.

    Args:
        source: The server.
        tool: The server's name of the tool.
        ctx: The context of the call.

    Attributes:
        id: The server's id for the task; empty if there is none.
    """

    def __init__(self, source: McpSource, tool: str, ctx: CallContext) -> None:
        self.id = ""
        self._source = source
        self._tool = tool
        self._ctx = ctx
        self._wait = 0.0
        self._over = False
        self._said = ""
        self._number = 0

    def begin(self, task: RemoteTask, progress: Progress) -> None:
        """Take the task that the server has made now, also if the call is cancelled before that is recorded."""
        self.take(task.id)
        self._go_on(task, progress)

    def take(self, task: str) -> None:
        """Take the id that is recorded; an empty one is none."""
        if task != self.id:
            self.id, self._wait, self._over = task, 0.0, False

    async def follow(
        self, known: Set[str], answers: Mapping[str, Any], progress: Progress
    ) -> ToolAnswer | Suspended | None:
        """Ask the server for the task until it ends or asks something new.

        A server that cannot be reached is tried again for as long as a call can take: it can be starting again.

        Args:
            known: The server's keys of the questions that it has answers to.
            answers: Those of the answers that it does not have yet; None declines.
            progress: Is told each new message about the state of the task.

        Returns:
            The result or the questions; `SUSPENDED` if the turn is being stopped; None if the server does not know the
            task.

        Raises:
            ToolFailed: The task failed, or the server cancelled it.
            CallTimeout: It takes longer than `task_timeout`.
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used.
        """
        drive = self._ctx.frame.drive
        if drive.can_ask:  # else it is a call outside of a turn
            await self._source.keep(self.id, drive.turn)
        try:
            return await self._until(known, answers, progress)
        finally:
            if self._over:
                await self._source.forget(self.id)

    async def _until(
        self, known: Set[str], answers: Mapping[str, Any], progress: Progress
    ) -> ToolAnswer | Suspended | None:
        server, clock = self._source.server, self._ctx.budget.clock
        end = clock.monotonic() + server.task_timeout
        down: float | None = None
        while True:
            await clock.sleep(self._wait)
            if self._continues:
                return SUSPENDED
            try:
                found = await self._source.look(self._tool, self.id, answers)
            except ToolFailed:
                self._over = True
                raise
            except McpServerUnavailable:
                now = clock.monotonic()
                down = now if down is None else down
                if now - down >= server.timeout:
                    raise
                self._wait = max(self._wait, _OUTAGE_WAIT)
                continue
            down, answers = None, {}
            if found is None or found.task is None:
                self._over = True
                return found
            if found.beyond or any(each.key not in known for each in found.asks):
                return found
            self._go_on(found.task, progress)
            left = end - clock.monotonic()
            if left <= 0:
                raise self._source.failures.task_late(self._tool, server.task_timeout).error()
            self._wait = min(self._wait, left)

    @property
    def _continues(self) -> bool:
        """Whether the turn is being stopped, and can be resumed; one that a message interrupts ends after its calls."""
        drive = self._ctx.frame.drive
        return drive.stopping and not drive.interrupted

    def _go_on(self, task: RemoteTask, progress: Progress) -> None:
        self._wait = task.wait
        if task.message and task.message != self._said:
            self._said, self._number = task.message, self._number + 1
            progress(self._number, None, task.message)

    def cancel_after(self, error: BaseException) -> None:
        """Cancel the task because the call ends with this error, unless it has ended or is followed again later."""
        if isinstance(error, asyncio.CancelledError):
            again = self._continues or not self._ctx.cancelled
        else:
            again = isinstance(error, HostError) and error.retryable
        if self.id and not self._over and not again:
            self._source.cancel(self.id)
