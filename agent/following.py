"""Following a turn's events wherever it runs: from this process's memory, else from the turn log.

A follower holds a place and what it has read of the log at once, never a queue, so a slow reader costs no memory: it
reads from the log. All followers here of a turn that another process runs share one `Watch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Final, Self

from ..core.errors import AgentClosed, EventsGone, InvalidArgument, UnknownTurn
from ..core.events import Event, ReasoningDelta
from ..memory.turn_log import EventPage, TurnLog
from ..storage import Leases

if TYPE_CHECKING:
    from .recording import Recorder

_KEPT_EVENTS: Final = 256
_FIRST_LOOK_SECONDS: Final = 0.02
_LONGEST_LOOK_SECONDS: Final = 0.25  # between two looks at a turn without new events
_UNWATCHED_SECONDS: Final = 1.0  # without a waiting reader, after which a turn is not looked at any more


class Channel:
    """The newest events of one run, for its readers in this process. Older ones are in the log.

    Attributes:
        closed: Whether no more events come.
        first: The number of the run's first event, once `last` is known.
        last: The number of the last event that can be read; None while the run's first number is not known.
        thoughts: How many events without a number there were.
        awaited: How many readers wait for the next event.
    """

    def __init__(self) -> None:
        self.closed = False
        self.first = 1
        self.last: int | None = None
        self.thoughts = self.awaited = 0
        self._events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._thoughts: deque[tuple[int, int, Event]] = deque(maxlen=_KEPT_EVENTS)
        self._news = asyncio.Event()

    def begin(self, after: int) -> None:
        """Set the number that the run's first event comes after."""
        self.first, self.last = after + 1, after
        self._wake()

    def publish(self, events: Sequence[Event]) -> None:
        """Let readers have events."""
        for event in events:
            self._events.append(event)
            self.last = event.seq
        self._wake()

    def skip(self, seq: int) -> None:
        """Leave out an event that this version does not know; those before it are read from the log, too."""
        self._events.clear()
        self.last = seq
        self._wake()

    def think(self, event: ReasoningDelta, *, after: int) -> None:
        """Let readers that stream the run have an event without a number, after the one numbered `after`."""
        self.thoughts += 1
        self._thoughts.append((self.thoughts, after, event))
        self._wake()

    def close(self) -> None:
        """Publish no more events."""
        self.closed = True
        self._wake()

    def event(self, seq: int) -> Event | None:
        """The event of a number, if it is among those that are kept."""
        place = seq - self._events[0].seq if self._events else -1
        return self._events[place] if 0 <= place < len(self._events) else None

    def thought(self, count: int, *, read: int) -> tuple[int, Event] | None:
        """The next event without a number, and its count; None where none is due.

        Args:
            count: How many of them the reader has taken or passed.
            read: The number of the last event that the reader has taken.
        """
        for number, after, event in self._thoughts if count < self.thoughts else ():
            if number > count:
                return (number, event) if after <= read else None
        return None

    async def news(self) -> None:
        """Wait until something comes, or until nothing comes any more."""
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
    """Looks at one turn that another process runs. It ends when the turn no longer runs, or when no reader waits.

    An error ends it, too, without being raised: each reader looks once more then, and raises its own.

    Args:
        log: Where the turn's events come from.
        leases: Which threads are owned.
        turn_id: The turn.
        last: The number of its last event by now.

    Attributes:
        channel: Where the readers take its events from.
        task: The task that looks.
        unowned: Whether it has ended because the turn is recorded as running and no process runs it.
        failed: Whether it has ended because a look failed.
    """

    def __init__(self, log: TurnLog, leases: Leases, turn_id: str, last: int) -> None:
        self.channel = Channel()
        self.channel.begin(last)
        self.unowned = self.failed = False
        self._log = log
        self._leases = leases
        # In an empty context: it serves all readers, and not only the first one.
        self.task = asyncio.get_running_loop().create_task(self._look(turn_id, last), context=Context())
        self.task.add_done_callback(self._ended)

    async def _look(self, turn_id: str, after: int) -> None:
        pause, unwatched, unowned = _FIRST_LOOK_SECONDS, 0.0, False
        while unwatched < _UNWATCHED_SECONDS:
            page = await self._log.page(turn_id, after)
            if page is None:
                return
            if page.events:
                pause, unowned = _FIRST_LOOK_SECONDS, False
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
            else:  # its owner may have written its last events since this look
                unowned = True
                continue
            await asyncio.sleep(pause)
            unwatched = 0.0 if self.channel.awaited else unwatched + pause
            pause = min(pause * 2, _LONGEST_LOOK_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.failed = task.cancelled() or task.exception() is not None
        self.channel.close()


class EventFollower:
    """An async iterator over the events of a turn: those there are, then those that come, to the end of its run.

    It ends once the turn no longer runs: it is over, it waits for a person, it was stopped or interrupted.

    Args:
        recorder: The recordings of this process.
        turn_id: The turn's id.
        workspace: The turn's workspace.
        after: The number of the last event that is known already; None begins with the first event of `run`.
        run: The channel of the only run that is followed.
        whole: Whether `after` has to be a number that the turn has reached, with all events after it kept. Otherwise
            the follower begins with the events that are kept, or waits for the turn's end.
        thinks: Whether to give the events without a number, too, from now on.
    """

    def __init__(
        self,
        recorder: Recorder,
        turn_id: str,
        *,
        workspace: str,
        after: int | None = 0,
        run: Channel | None = None,
        whole: bool = True,
        thinks: bool = False,
    ) -> None:
        self.turn_id = turn_id
        self._recorder = recorder
        self._workspace = workspace
        self._after = after
        self._run = run
        self._whole = whole
        self._thinks = thinks
        self._channel = run  # the latest one
        self._watch: Watch | None = None
        self._unproven = whole and bool(after)  # the turn may never have reached that number
        self._read: deque[tuple[int, str]] = deque()
        self._ended = False
        self._thoughts = 0
        self._tune()

    @property
    def behind(self) -> int:
        """How many events there are that were not taken yet, as far as this process knows."""
        self._tune()
        if self._channel is None or self._channel.last is None or self._after is None:
            return len(self._read)
        return max(self._channel.last - self._after, 0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = None if self._ended else await self.next()
        if event is None:
            self._ended = True
            raise StopAsyncIteration
        return event

    async def next(self) -> Event | None:
        """The next event; None where the turn does not run. It can be called again, once the turn is resumed.

        Raises:
            UnknownTurn: There is no such turn in the workspace.
            InvalidArgument: It has not reached the number after which events were requested.
            EventsGone: The events were not recorded, or are kept no more.
            StorageInvalid: An event is not what was written.
            StorageUnavailable: The database cannot be reached; it can be called again.
        """
        while True:
            self._tune()
            event = self._next_here()
            if event is not None:
                return event
            if not await self._more():
                self._watch = None
                return None

    def _tune(self) -> None:
        """Take events from the run that is under way here, if there is one."""
        live = self._recorder.live.get(self.turn_id)
        if self._run is None and live is not None and live.channel is not self._channel:
            self._channel, self._watch, self._thoughts = live.channel, None, live.channel.thoughts

    def _next_here(self) -> Event | None:
        """The next event without a wait."""
        channel = self._channel
        if self._thinks and channel is not None:
            thought = channel.thought(self._thoughts, read=self._after or 0)
            if thought is not None:
                self._thoughts, event = thought
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
        """Wait for something to read; False where nothing comes any more."""
        channel = self._channel
        taken = channel is not None and (channel.last is None or (self._after or 0) >= channel.last)
        if channel is not None and taken and not channel.closed and not self._unproven:
            await channel.news()
            return True
        if self._run is not None and taken:
            return False
        assert self._after is not None, "a follower that does not know where to begin waits for the run"
        try:
            page = await self._page(self._after)
        except AgentClosed:
            if not taken or self._watch is not None:
                raise
            return False  # the run here was the last thing that it could see
        if page is None:
            return True
        self._read.extend(page.events)
        if page.events:
            return True
        self._tune()
        if self._channel is not None and not self._channel.closed:
            return self._run is None
        return page.status == "running" and await self._watching(page)

    async def _page(self, after: int) -> EventPage | None:
        """Look into the log; None after a wait for a turn that has not begun yet."""
        coming = self._recorder.coming.get(self.turn_id)
        page = await self._recorder.log.page(self.turn_id, after)
        if page is None and coming is not None:  # it waits for its thread
            if self._recorder.coming.get(self.turn_id) is coming:  # otherwise it owns it by now, and there is no news
                await coming.channel.news()
            return None
        if page is None or page.workspace != self._workspace:
            raise UnknownTurn(
                f"there is no turn {self.turn_id[:200]!r} in the workspace {self._workspace!r}",
                remedy="use an id that an event or a Turn carries; a turn is known once it owns its thread",
            )
        if page.gone is None:
            raise EventsGone(
                f"the events of the turn {self.turn_id!r} were not recorded",
                remedy="begin a turn with `detach` or with a key to follow it from elsewhere",
            )
        if after < page.gone and not self._whole:
            self._after = page.gone
        elif after < page.gone:
            raise EventsGone(
                f"the events of the turn {self.turn_id!r} are kept no more up to the number {page.gone}",
                remedy=f"read on after {page.gone}; the thread's history has what was said, "
                "and the setting event_age keeps more",
            )
        if self._unproven and after > page.last:
            raise InvalidArgument(
                f"after is beyond the turn's last event, which is {page.last}",
                remedy=f"read on after {page.last}, or from 0 on where the database was restored from a copy",
            )
        self._unproven = False
        return page

    async def _watching(self, page: EventPage) -> bool:
        """Follow the run of another process from now on; False where no process runs the turn."""
        if self._watch is not None and self._watch.unowned:
            return False
        if self._watch is not None and self._watch.failed:
            await self._recorder.leases.owned([page.thread])  # raises here what the watch failed with
        self._watch = self._recorder.watch(self.turn_id, page.last)
        self._channel, self._thoughts = self._watch.channel, 0
        return True


__all__ = ["Channel", "EventFollower", "Watch"]
