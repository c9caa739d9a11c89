"""Turns that no person watches: how their questions are handled, and who is notified when they wait (T13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, Protocol

from ..core import Clock, Scope
from ..core.errors import InvalidArgument, LimitReached, WorldAgentError
from ..core.events import Event, PauseNotified
from ..core.pauses import Pause, UnattendedMode
from ..harness.guard import OnError, guarded
from ..harness.inside import without_exit
from ..harness.limits import LEAF_END_SECONDS, with_timeout

Unattended = UnattendedMode | bool | None
"""`"refuse"` or `"pause"`; True is the setting `unattended`, False a turn that a person watches, None the default."""

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


def check_unattended(given: object, setting: UnattendedMode, *, scheduled: bool = False) -> UnattendedMode | None:
    """The mode that a turn begins with; None is attended.

    Args:
        given: The argument `unattended` of the surface.
        setting: The setting `unattended`.
        scheduled: Whether a schedule began the turn, so that it is unattended unless the caller says otherwise.

    Raises:
        InvalidArgument: It is not one of the accepted values.
    """
    if given is True or (given is None and scheduled):
        return setting
    if given is None or given is False:
        return None
    if given == "refuse" or given == "pause":
        return "refuse" if given == "refuse" else "pause"
    raise InvalidArgument(
        f"`unattended` must be 'refuse', 'pause', True, False or None, got {str(given)[:40]!r}",
        remedy="use 'refuse' where questions must be refused, or 'pause' where the turn must wait for a person",
    )


class AccountEvents:
    """Hands the events that concern accounts to the readers in this process. It keeps nothing for later readers."""

    def __init__(self) -> None:
        self._readers: dict[asyncio.Queue[Event | None], tuple[str, str | None]] = {}

    def publish(self, scope: Scope, event: Event) -> None:
        """Hand an event of a turn to the readers it concerns. Only `PauseNotified` events are handed on."""
        if not isinstance(event, PauseNotified):
            return
        for queue, (workspace, account) in self._readers.items():
            if workspace == scope.workspace and account in (None, scope.account):
                _put(queue, event)

    def read(self, workspace: str, account: str | None) -> AsyncIterator[Event]:
        """Follow the events of one account, or of all accounts of the workspace, from this call on."""
        queue = asyncio.Queue[Event | None](MAX_WAITING_EVENTS)
        self._readers[queue] = (workspace, account)
        return self._follow(queue)

    async def _follow(self, queue: asyncio.Queue[Event | None]) -> AsyncIterator[Event]:
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


def _put(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
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


__all__ = ["AccountEvents", "Notifier", "Unattended", "check_unattended", "notify"]
