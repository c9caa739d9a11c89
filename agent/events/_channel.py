"""What readers in this process take the newest events of one run from. Older ones are in the log.

A reader holds a place and no queue, so one that is slow costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from ...core.events import Event, ReasoningDelta

KEPT: Final = 256
"""How many of the newest events are kept in memory for the readers of a run."""


class Channel:
    """The newest events of one run, and who waits for the next one.

    Attributes:
        closed: Whether nothing more comes.
        thoughts: How many events without a number there were.
        first: The number of the run's first event, once `last` is known.
    """

    def __init__(self) -> None:
        self.closed = False
        self.thoughts = 0
        self.first = 1
        self._last: int | None = None
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._thoughts: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def last(self) -> int | None:
        """The number of the last event that can be read; None where nobody knows yet with which one the run begins."""
        return self._last

    def begin(self, after: int) -> None:
        """The run's first event comes after the number `after`."""
        self.first, self._last = after + 1, after
        self._wake()

    def publish(self, events: Sequence[Event]) -> None:
        """Let readers have events."""
        for event in events:
            self._events.append(event)
            self._last = event.seq
        self._wake()

    def think(self, event: ReasoningDelta, *, after: int) -> None:
        """Let those who stream the run have an event that has no number, once they have the one numbered `after`."""
        self._thoughts.append((after, event))
        self.thoughts += 1
        self._wake()

    def thought(self, count: int, *, read: int) -> tuple[int, Event] | None:
        """The next event without a number, and how many there were with it; None where none is due.

        Args:
            count: How many of them a reader had.
            read: The number of the last event that it had.
        """
        gone = self.thoughts - len(self._thoughts)
        place = max(count - gone, 0)
        if place >= len(self._thoughts):
            return None
        after, event = self._thoughts[place]
        return (gone + place + 1, event) if after <= read else None

    def skip(self, seq: int) -> None:
        """The next event is one that is not kept here; what stands before it is read from the log, too."""
        self._events.clear()
        self._last = seq
        self._wake()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the next event."""
        return bool(self._waiting)

    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
        self._wake()

    def event(self, seq: int) -> Event | None:
        """The event of a number, if it is among those that are kept."""
        place = seq - self._events[0].seq if self._events else -1
        return self._events[place] if 0 <= place < len(self._events) else None

    async def news(self) -> None:
        """Wait until something comes, or until nothing comes any more."""
        if self.closed:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


__all__ = ["KEPT", "Channel"]
