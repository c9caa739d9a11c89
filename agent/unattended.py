"""Who is notified when a turn that no person watches waits for an answer, and the events of accounts (T13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, Protocol

from ..core import Clock, Scope
from ..core.errors import LimitReached, WorldAgentError
from ..core.events import TurnEvent
from ..core.pauses import Pause
from ..harness.guard import OnError, guarded
from ..harness.inside import without_exit
from ..harness.limits import LEAF_END_SECONDS, with_timeout

NOTIFY_SECONDS: Final = 10.0
"""How long one call of a notifier may take."""

MAX_WAITING_EVENTS: Final = 1000
"""How many events a reader of `AccountEvents` can be behind before it misses the oldest ones."""

_LOG = logging.getLogger("worldagent.turns")


class Notifier(Protocol):
    """Notifies a person that an unattended turn waits for them; pass one as `WorldAgent(notifier=...)`."""

    async def notify(self, pause: Pause) -> None:
        """Notify the person who can answer a pause.

        It is called before the turn is recorded as paused, so a crash can repeat a notification and cannot lose one.
        Hand the message over and return: the turn's thread is owned until then, for 10 seconds at most, so the turn
        must be resumed by something else.

        Args:
            pause: What the turn waits for; `pause.id` is what `thread.resume()` takes the answer by.
        """
        ...


class AccountEvents:
    """Hands the events that concern accounts to the readers in this process. It keeps nothing for later readers."""

    def __init__(self) -> None:
        self._readers: dict[asyncio.Queue[TurnEvent | None], tuple[str, str | None]] = {}

    def publish(self, scope: Scope, event: TurnEvent) -> None:
        """Hand an event of a turn to the readers it concerns."""
        for queue, (workspace, account) in self._readers.items():
            if workspace == scope.workspace and account in (None, scope.account):
                _put(queue, event)

    def read(self, workspace: str, account: str | None) -> AsyncIterator[TurnEvent]:
        """Follow the events of one account, or of all accounts of the workspace, from this call on."""
        queue = asyncio.Queue[TurnEvent | None](MAX_WAITING_EVENTS)
        self._readers[queue] = (workspace, account)
        return self._follow(queue)

    async def _follow(self, queue: asyncio.Queue[TurnEvent | None]) -> AsyncIterator[TurnEvent]:
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._readers.pop(queue, None)

    def close(self) -> None:
        """End all readers: the agent is closed."""
        for queue in self._readers:
            _put(queue, None)
        self._readers.clear()


def _put(queue: asyncio.Queue[TurnEvent | None], event: TurnEvent | None) -> None:
    if queue.full():
        queue.get_nowait()
        _LOG.warning("a reader of account events is %s events behind and misses the oldest one", MAX_WAITING_EVENTS)
    queue.put_nowait(event)


async def notify(notifier: Notifier | None, pauses: Iterable[Pause], *, clock: Clock, on_error: OnError | None) -> None:
    """Call a notifier once for each pause. If it raises or takes too long, that is logged and changes nothing."""
    if notifier is None:
        return

    def late() -> WorldAgentError:
        return LimitReached("the notifier took too long", remedy="let it hand the message over and return")

    for pause in pauses:
        running = guarded(without_exit(notifier.notify(pause)), what="the notifier", on_error=on_error)
        try:
            await with_timeout(
                running, clock.sleep(NOTIFY_SECONDS), what="the notifier", late=late, patience=LEAF_END_SECONDS
            )
        except WorldAgentError as error:
            _LOG.warning("the notifier failed for the pause %s (%s); the turn waits all the same", pause.id, error.code)


__all__ = ["AccountEvents", "Notifier", "notify"]
