"""Follows a turn's events wherever it runs: from this process's memory if possible, else from the turn log.

A follower holds its position and one page of the log, never a queue, so a slow reader costs no memory. All followers in
this process of a turn that another process runs share one `Watch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Final, Self

from ..core.errors import AgentClosed, EventsGone, InvalidArgument, UnknownTurn
from ..core.events import Deltas, TaskDelta, TurnEvent
from ..memory.turn_log import EventPage, TurnLog
from ..storage import Leases

if TYPE_CHECKING:
    from .recording import Recorder

_KEPT_EVENTS: Final = 256
FIRST_POLL_SECONDS: Final = 0.02
MAX_POLL_SECONDS: Final = 0.25  # between two polls of a turn without new events
_UNWATCHED_SECONDS: Final = 1.0  # how long a turn is polled without a waiting reader


class Channel:
    """The newest events of one run, for readers in this process. Older ones are in the log.

    Attributes:
        closed: Whether no further events come.
        first: The number of the run's first event, once `last` is known.
        last: The number of the last event that can be read; None until the run's first number is known.
        unnumbered: How many events without a number were published.
        awaited: How many readers wait for the next event.
    """

    def __init__(self) -> None:
        self.closed = False
        self.first = 1
        self.last: int | None = None
        self.unnumbered = self.awaited = 0
        self._events: deque[TurnEvent] = deque(maxlen=_KEPT_EVENTS)
        self._unnumbered: deque[tuple[int, int, TurnEvent]] = deque(maxlen=_KEPT_EVENTS)
        self._news = asyncio.Event()

    def begin(self, after: int) -> None:
        """Set the number before that of the run's first event."""
        self.first, self.last = after + 1, after
        self._wake()

    def publish(self, events: Sequence[TurnEvent]) -> None:
        """Publish events to readers."""
        for event in events:
            self._events.append(event)
            self.last = event.seq
        self._wake()

    def skip(self, seq: int) -> None:
        """Skip an event of a kind that this version does not know; readers take the events before it from the log."""
        self._events.clear()
        self.last = seq
        self._wake()

    def publish_unnumbered(self, event: TurnEvent, *, after: int) -> None:
        """Publish an event without a number, after the one numbered `after`, to readers that stream the run."""
        self.unnumbered += 1
        self._unnumbered.append((self.unnumbered, after, event))
        self._wake()

    def close(self) -> None:
        """Publish no more events."""
        self.closed = True
        self._wake()

    def event(self, seq: int) -> TurnEvent | None:
        """Return the event with a number, if it is still held."""
        place = seq - self._events[0].seq if self._events else -1
        return self._events[place] if 0 <= place < len(self._events) else None

    def next_unnumbered(self, count: int, *, read: int) -> tuple[int, TurnEvent] | None:
        """Return the next event without a number and its count; None if none is due.

        Args:
            count: How many of them the reader has taken or passed.
            read: The number of the last event that the reader has taken.
        """
        for number, after, event in self._unnumbered if count < self.unnumbered else ():
            if number > count:
                return (number, event) if after <= read else None
        return None

    async def news(self) -> None:
        """Wait until an event is published or the channel is closed."""
        if not self.closed:
            self.awaited += 1
            try:
                await self._news.wait()
            finally:
                self.awaited -= 1

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Watch:
    """Polls one turn that another process runs. It ends when the turn no longer runs, or when no reader waits.

    An error also ends it, but is not raised here: each reader then reads once more and raises its own error.

    Args:
        log: The turn log.
        leases: Which threads are owned.
        turn_id: The turn.
        last: The number of the turn's last event so far.

    Attributes:
        channel: Publishes the turn's events to the readers.
        task: The polling task.
        unowned: Whether it ended because the turn is recorded as running and no process runs it.
        failed: Whether it ended because of an error.
    """

    def __init__(self, log: TurnLog, leases: Leases, turn_id: str, last: int) -> None:
        self.channel = Channel()
        self.channel.begin(last)
        self.unowned = self.failed = False
        self._log = log
        self._leases = leases
        # In an empty context, since it serves all readers and not only the first one.
        self.task = asyncio.get_running_loop().create_task(self._look(turn_id, last), context=Context())
        self.task.add_done_callback(self._ended)

    async def _look(self, turn_id: str, after: int) -> None:
        pause, unwatched, unowned = FIRST_POLL_SECONDS, 0.0, False
        while unwatched < _UNWATCHED_SECONDS:
            page = await self._log.page(turn_id, after)
            if page is None:
                return
            if page.events:
                pause, unowned = FIRST_POLL_SECONDS, False
                for seq, line in page.events:
                    event = self._log.event(turn_id, seq, line)
                    if event is None:
                        self.channel.skip(seq)
                    else:
                        self.channel.publish([event])
                after = page.events[-1][0]
            elif page.status != "running":
                return
            elif page.thread in await self._leases.owned([page.thread]):
                unowned = False
            elif unowned:
                self.unowned = True
                return
            else:  # its owner may have written its last events after this page was read
                unowned = True
                continue
            await asyncio.sleep(pause)
            unwatched = 0.0 if self.channel.awaited else unwatched + pause
            pause = min(pause * 2, MAX_POLL_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.failed = task.cancelled() or task.exception() is not None
        self.channel.close()


class EventFollower:
    """An async iterator over the events of a turn: the stored ones, then new ones, to the end of its run.

    It ends once the turn no longer runs: the turn is over, waits for a person, was stopped or was interrupted.

    Args:
        recorder: The recordings of this process.
        turn_id: The turn's id.
        workspace: The turn's workspace.
        after: The number of the last event that the caller has; None starts with the first event of `run`.
        run: The channel of the run, if only one run is followed.
        strict: Whether the turn must have reached the number `after`, and all events after it must still be stored.
            Otherwise the follower starts with the oldest stored event, or waits for the turn's end.
        deltas: Which events without a number to give, too, from now on.
    """

    def __init__(
        self,
        recorder: Recorder,
        turn_id: str,
        *,
        workspace: str,
        after: int | None = 0,
        run: Channel | None = None,
        strict: bool = True,
        deltas: Deltas = "none",
    ) -> None:
        self.turn_id = turn_id
        self._recorder = recorder
        self._workspace = workspace
        self._after = after
        self._run = run
        self._strict = strict
        self._deltas = deltas
        self._channel = run  # the channel of the latest run
        self._watch: Watch | None = None
        self._unproven = strict and bool(after)  # the turn may never have reached that number
        self._read: deque[tuple[int, str]] = deque()
        self._ended = False
        self._unnumbered = 0
        self._switch_channel()

    @property
    def behind(self) -> int:
        """The number of events that have not been taken yet, as far as this process knows."""
        self._switch_channel()
        if self._channel is None or self._channel.last is None or self._after is None:
            return len(self._read)
        return max(self._channel.last - self._after, 0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TurnEvent:
        event = None if self._ended else await self.next()
        if event is None:
            self._ended = True
            raise StopAsyncIteration
        return event

    async def next(self) -> TurnEvent | None:
        """Return the next event; None if the turn does not run. It can be called again once the turn is resumed.

        Raises:
            UnknownTurn: The workspace has no such turn.
            InvalidArgument: The turn has not reached the number after which events were requested.
            EventsGone: The events were not recorded, or have been removed.
            StorageInvalid: A stored event cannot be read.
            StorageUnavailable: The database cannot be reached; you can call this again.
        """
        while True:
            self._switch_channel()
            event = self._next_here()
            if event is not None:
                return event
            if not await self._more():
                self._watch = None
                return None

    def _switch_channel(self) -> None:
        """Switch to the channel of the run in this process, if there is one."""
        live = self._recorder.live.get(self.turn_id)
        if self._run is None and live is not None and live.channel is not self._channel:
            self._channel, self._watch, self._unnumbered = live.channel, None, live.channel.unnumbered

    def _next_here(self) -> TurnEvent | None:
        """Return the next event that is available without waiting."""
        channel = self._channel
        while self._deltas != "none" and channel is not None:
            unnumbered = channel.next_unnumbered(self._unnumbered, read=self._after or 0)
            if unnumbered is None:
                break
            self._unnumbered, event = unnumbered
            if self._deltas == "all" or not isinstance(event, TaskDelta):
                return event
        while self._read:
            seq, line = self._read.popleft()
            found = self._recorder.log.event(self.turn_id, seq, line)
            self._after = seq
            if found is not None:
                return found
        if channel is None or channel.last is None:
            return None
        if self._after is None:
            self._after = channel.first - 1
        found = channel.event(self._after + 1)
        if found is not None:
            self._after, self._unproven = found.seq, False
        return found

    async def _more(self) -> bool:
        """Wait for something to read; returns False if no further events come."""
        channel = self._channel
        taken = channel is not None and (channel.last is None or (self._after or 0) >= channel.last)
        if channel is not None and taken and not channel.closed and not self._unproven:
            await channel.news()
            return True
        if self._run is not None and taken:
            return False
        assert self._after is not None, "a follower without a start position waits for the run"
        try:
            page = await self._page(self._after)
        except AgentClosed:
            if not taken or self._watch is not None:
                raise
            return False  # the run in this process was the last that this agent could follow
        if page is None:
            return True
        self._read.extend(page.events)
        if page.events:
            return True
        self._switch_channel()
        if self._channel is not None and not self._channel.closed:
            return self._run is None
        return page.status == "running" and await self._watching(page)

    async def _page(self, after: int) -> EventPage | None:
        """Read a page of the log; returns None after waiting for a turn that has not begun yet."""
        expected = self._recorder.expected.get(self.turn_id)
        page = await self._recorder.log.page(self.turn_id, after)
        if page is None and expected is not None:  # the turn waits for its thread
            if (
                self._recorder.expected.get(self.turn_id) is expected
            ):  # otherwise it has begun meanwhile, and no news comes
                await expected.channel.news()
                self.turn_id = expected.turn.turn  # another turn of the thread began first, with a later id
            return None
        if page is None or page.workspace != self._workspace:
            raise UnknownTurn(
                f"the workspace {self._workspace!r} has no turn {self.turn_id[:200]!r}",
                remedy="use the id from an event or a Turn; a turn is known once it owns its thread",
            )
        if page.gone is None:
            raise EventsGone(
                f"the events of the turn {self.turn_id!r} were not recorded",
                remedy="begin a turn with `detach` or with a key to follow it from another process",
            )
        if after < page.gone and not self._strict:
            self._after = page.gone
        elif after < page.gone:
            raise EventsGone(
                f"the events of the turn {self.turn_id!r} up to number {page.gone} have been removed",
                remedy=f"read on after {page.gone}; the messages are in the thread's history, and a higher setting "
                "event_age keeps events longer",
            )
        if self._unproven and after > page.last:
            raise InvalidArgument(
                f"`after` must not be beyond the turn's last event, {page.last}",
                remedy=f"read on after {page.last}, or from 0 if the database was restored from a backup",
            )
        self._unproven = False
        return page

    async def _watching(self, page: EventPage) -> bool:
        """Follow the run of another process; returns False if no process runs the turn."""
        if self._watch is not None and self._watch.unowned:
            return False
        if self._watch is not None and self._watch.failed:
            await self._recorder.leases.owned([page.thread])  # raises the error that ended the watch, if it persists
        self._watch = self._recorder.watch(self.turn_id, page.last)
        self._channel, self._unnumbered = self._watch.channel, 0
        return True


__all__ = ["Channel", "EventFollower", "Watch"]
