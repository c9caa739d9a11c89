"""Following a turn's events from wherever it runs: from this process's memory, else from the log.

A follower holds a place and what it has read of the log at once, never a queue; who reads slowly reads from the log.
Who waits for a turn of another process waits with all who follow it here (`_elsewhere`).
"""

from __future__ import annotations

from collections import deque
from typing import Self

from ...core.errors import AgentClosed, EventsGone, InvalidArgument, UnknownTurn
from ...core.events import Event
from ...memory.events import EventPage
from ._channel import Channel
from ._elsewhere import Elsewhere, parsed
from ._recorder import Recorder


class EventFollower:
    """An async iterator over the events of a turn: those there are, then those that come, to the end of its run.

    It ends once the turn no longer runs: it is over, it waits for a person, it was stopped or cut off.

    Args:
        recorder: What writes the events of this process.
        turn_id: The turn's id.
        workspace: The turn's workspace.
        after: The number of the last event that is known already.
        channel: Of the run that alone is followed; its events begin after those of earlier runs.
        whole: Whether `after` has to be a number that the turn has come to, with all behind it kept; else it begins
            with what is kept, or waits for the turn's end.
        thinks: Whether the events without a number are given, too, from now on.
    """

    def __init__(
        self,
        recorder: Recorder,
        turn_id: str,
        *,
        workspace: str,
        after: int | None = 0,
        channel: Channel | None = None,
        whole: bool = True,
        thinks: bool = False,
    ) -> None:
        self.turn_id = turn_id
        self._recorder = recorder
        self._workspace = workspace
        self._after = after
        self._channel = channel
        self._whole = whole
        self._here: Channel | None = None  # of the run that was seen here last
        self._elsewhere: Elsewhere | None = None
        self._unproven = whole and bool(after)  # the turn may never have come to that number
        self._read: deque[tuple[int, str]] = deque()
        self._ended = False
        self._thinks = thinks
        self._thought_on = self._live()
        self._thoughts = 0 if self._thought_on is None else self._thought_on.thoughts

    @property
    def behind(self) -> int:
        """How many events are there that were not taken yet, as far as this process knows."""
        channel = self._live()
        if channel is None or channel.last is None or self._after is None:
            return len(self._read)
        return max(channel.last - self._after, 0)

    def again(self) -> EventFollower:
        """One that goes on where this one ended, for a turn that went on meanwhile."""
        workspace, whole, thinks = self._workspace, self._whole, self._thinks
        return EventFollower(
            self._recorder, self.turn_id, workspace=workspace, after=self._after, whole=whole, thinks=thinks
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self) -> Event | None:
        """The next event; None after the last one.

        Raises:
            UnknownTurn: There is no such turn in the workspace.
            InvalidArgument: It has not come to the number behind which events were asked for.
            EventsGone: The events were not recorded, or are kept no more.
            StorageInvalid: An event is not what was written.
            StorageUnavailable: The database is out of reach; it can be asked again.
        """
        while not self._ended:
            if self._thinks and (thought := self._thought()) is not None:
                return thought
            event = self._from_page() or self._from_channel()
            if event is not None:
                self._after, self._unproven = event.seq, False
                return event
            if not self._read:
                self._ended = not await self._more()
        return None

    def _live(self) -> Channel | None:
        if self._channel is not None:
            return self._channel
        recording = self._recorder.live.get(self.turn_id)
        if recording is not None:
            self._here, self._elsewhere = recording.channel, None
        return self._here if self._elsewhere is None else self._elsewhere.channel

    def _from_page(self) -> Event | None:
        while self._read:
            seq, line = self._read.popleft()
            event = parsed(self.turn_id, seq, line)
            if event is not None:
                return event
            self._after = seq  # of a kind that this version does not know
        return None

    def _from_channel(self) -> Event | None:
        channel = self._live()
        if channel is None or channel.last is None:
            return None
        if self._after is None:
            self._after = channel.first - 1
        return channel.event(self._after + 1)

    def _thought(self) -> Event | None:
        channel = self._live()
        if channel is None:
            return None
        if channel is not self._thought_on:
            self._thought_on, self._thoughts = channel, channel.thoughts
        found = channel.thought(self._thoughts, read=self._after or 0)
        if found is None:
            return None
        self._thoughts, event = found
        return event

    async def _more(self) -> bool:
        """Wait for something to read; False where nothing comes any more."""
        channel = self._live()
        taken = channel is not None and (channel.last is None or (self._after or 0) >= channel.last)
        if channel is not None and taken and not channel.closed and not self._unproven:
            await channel.news()
            return True
        if self._channel is not None and taken:
            return False
        assert self._after is not None, "whoever does not know where to begin waits for the run"
        page: EventPage | None = None
        try:
            page = await self._page(self._after)
        except AgentClosed:
            if not taken or self._elsewhere is not None:
                raise
            return False  # the run here was the last thing that it could see
        if page is None:
            return True
        for some in page.events:
            self._read.extend(enumerate(some.lines, some.first))
        if page.events:
            return True
        channel = self._live()
        if channel is not None and not channel.closed:
            return self._channel is None
        return page.status == "running" and await self._goes_on(page)

    async def _page(self, after: int) -> EventPage | None:
        coming = self._recorder.coming.get(self.turn_id)
        page = await self._recorder.log.page(self.turn_id, after)
        if page is None and coming is not None:  # it waits for its thread
            if self._recorder.coming.get(self.turn_id) is coming:  # else it has it meanwhile, and nobody tells again
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

    async def _goes_on(self, page: EventPage) -> bool:
        """Wait from now on, with all who follow it here, for a turn of another process; False where nobody runs it."""
        if self._elsewhere is not None and self._elsewhere.unowned:
            return False
        if self._elsewhere is not None and self._elsewhere.failed:
            await self._recorder.leases.owned([page.thread])  # what that fails with is for whoever reads
        self._elsewhere = self._recorder.watched(self.turn_id, page.last)
        return True


__all__ = ["EventFollower"]
