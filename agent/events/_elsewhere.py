"""A turn that another process runs, for all who follow it in this one: one look into the log serves every reader.

Without that, each reader would look by itself, and what a turn costs would grow with those who watch it.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Final

from pydantic import ValidationError

from ...core.errors import StorageInvalid
from ...core.events import Event, parse_event
from ...memory.events import EventLog, EventPage
from ...storage import Leases
from ._channel import Channel

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25  # seconds between two looks at a turn of which nothing is heard
_ALONE: Final = 1.0  # seconds without anybody who waits, after which it is looked at no more


class Elsewhere:
    """The looks at one turn. They end when it no longer runs, or when nobody has waited for a while.

    What they fail with is nobody's: each reader looks once more then, and is told itself.

    Args:
        log: Where its events come from.
        leases: Who owns threads.
        turn_id: The turn.
        last: The number of its last event by now.

    Attributes:
        channel: What the readers take its events from.
        task: Looks.
        unowned: Whether it has ended since the turn stands as running, and nobody runs it.
        failed: Whether it has ended since a look failed.
    """

    def __init__(self, log: EventLog, leases: Leases, turn_id: str, last: int) -> None:
        self.channel = Channel()
        self.channel.begin(last)
        self.unowned = self.failed = False
        self._log = log
        self._leases = leases
        # Not in the context of the reader that happens to be the first: it is for all.
        looking = self._look(turn_id, last)
        self.task = asyncio.get_running_loop().create_task(looking, context=Context())
        self.task.add_done_callback(self._ended)

    async def _look(self, turn_id: str, after: int) -> None:
        pause, alone, unowned = _FIRST_PAUSE, 0.0, False
        while alone < _ALONE:
            page = await self._log.page(turn_id, after)
            if page is None:
                return
            if page.events:
                pause, after, unowned = _FIRST_PAUSE, self._publish(turn_id, page), False
            elif page.status != "running":
                return
            elif page.thread in await self._leases.owned([page.thread]):
                unowned = False
            elif unowned:
                self.unowned = True
                return
            else:  # its owner may have written its last events since they were looked for
                unowned = True
                continue
            await asyncio.sleep(pause)
            alone = 0.0 if self.channel.awaited else alone + pause
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _publish(self, turn_id: str, page: EventPage) -> int:
        """Hand out what was found; gives the number of the last one."""
        seq = page.events[0].first
        for some in page.events:
            for seq, line in enumerate(some.lines, some.first):
                event = parsed(turn_id, seq, line)
                if event is None:
                    self.channel.skip(seq)
                else:
                    self.channel.publish([event])
        return seq

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.failed = task.cancelled() or task.exception() is not None
        self.channel.close()


def parsed(turn_id: str, seq: int, line: str) -> Event | None:
    """An event as it stands in the log; None where it is of a kind that this version does not know.

    Raises:
        StorageInvalid: It is not what was written.
    """
    event: Event | None = None
    try:
        event = parse_event(line)
        sound = event is None or (event.seq, event.turn_id) == (seq, turn_id)
    except ValidationError:
        sound = False
    if not sound:
        raise StorageInvalid(
            f"the event {seq} of the turn {turn_id!r} is not what was written",
            remedy="restore the database from a copy, or go on with another turn",
        )
    return event


__all__ = ["Elsewhere", "parsed"]
