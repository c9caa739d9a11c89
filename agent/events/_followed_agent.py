"""The part of an agent by which threads and turns are looked at and followed. Beginning turns is the threads' part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, overload

from ...core.errors import InvalidArgument
from ...core.events import Event
from ..threads import Wanted
from ._follower import EventFollower

if TYPE_CHECKING:
    from .._runs import TurnRunner
    from ..threads import ThreadState, ThreadStatus


class FollowedAgent:
    """An agent whose turns can be followed."""

    workspace: str
    _runner: TurnRunner

    async def threads(
        self,
        *,
        limit: int = 100,
        status: ThreadStatus | None = None,
        account: str | None = None,
        channel: str | None = None,
        query: str | None = None,
        before: datetime | str | None = None,
    ) -> tuple[ThreadState, ...]:
        """Where the workspace's threads stand, the one whose newest turn began last first.

        A thread must fit all filters that are given.

        Args:
            limit: How many, 1 to 1000.
            status: Only those that stand so, such as `paused`.
            account: Only those on which a turn has run for this account. A thread that was branched off or imported,
                and has no turn yet, fits where the account wrote one of its messages.
            channel: Only those whose newest turn runs in this channel, which is the `channel` that is listed.
            query: Only those whose title or conversation says this text, 1 to 200 characters, whatever the case of its
                letters. Looked through are messages, answers, and what tasks, skills and schedules were given and
                gave; not what an edit left behind, and no role, since those are stored nowhere.
            before: The next page: the `page_key` of the last thread that you have. An aware time gives the threads
                whose newest turn began before it. A thread without a turn counts from when it was branched off.

        Raises:
            InvalidArgument: `limit` is out of bounds, there is no such status, an id or the text cannot be one, or
                `before` is neither a page key nor an aware time.
            AgentClosed: The agent is not open.
        """
        wanted = Wanted.of(limit=limit, status=status, account=account, channel=channel, query=query, before=before)
        return await self._runner.threads(self.workspace, wanted)

    async def turn(self, turn_id: str) -> ThreadState | None:
        """Where a turn of the workspace stands, whether or not it is its thread's newest; None where there is none.

        Args:
            turn_id: The turn's id, as its events and a `Turn` carry it.

        Raises:
            InvalidArgument: `turn_id` is no text.
            AgentClosed: The agent is not open.
        """
        return await self._runner.parts.threads.of_turn(self.workspace, _checked(turn_id))

    @overload
    def events(self, turn_id: str, *, after: int = 0) -> EventFollower: ...
    @overload
    def events(self, *, account: str | None = None) -> AsyncIterator[Event]: ...
    def events(
        self, turn_id: str | None = None, *, after: int = 0, account: str | None = None
    ) -> EventFollower | AsyncIterator[Event]:
        """Follow a recorded turn, in whatever process it runs: `async for event in agent.events(turn_id, after=7)`.

        Recorded are turns that were begun, or gone on with, with `detach=True`, and those with a key. It gives the
        events that are there and then those that come, each once and in order, and ends when the turn no longer runs:
        it is over, or can go on with `resume()`. Leave it whenever you like.

        Without a turn it follows an account instead: `async for event in agent.events(account="ana")` gives a
        `PauseNotified` for each pause of the account's unattended turns that run in this process, from the call on,
        until the agent is closed. None is all accounts of the workspace.

        Args:
            turn_id: The turn's id.
            after: The number (`seq`) of the last event that you have; 0 is from the first one on.
            account: Whose events, where no turn is given.

        Raises:
            InvalidArgument: `turn_id` is no text, or `after` no number from 0 on.
            AgentClosed: The agent is not open.
            UnknownTurn: There is no such turn; this and what follows comes while iterating.
            InvalidArgument: `after` is behind the turn's last event; the text says which that is.
            EventsGone: The turn is not recorded, or its events behind `after` are kept no more (`event_age`).
            StorageInvalid, StorageUnavailable: They cannot be read.
        """
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise InvalidArgument("after is no number from 0 on", remedy="give the seq of the last event that you have")
        if turn_id is None:
            return self._runner.parts.account_events.read(self.workspace, account)
        recorder = self._runner.parts.recorder
        return EventFollower(recorder, _checked(turn_id), workspace=self.workspace, after=after)


def _checked(turn_id: object) -> str:
    if not isinstance(turn_id, str):
        raise InvalidArgument("turn_id is no text", remedy="use an id that an event or a Turn carries")
    return turn_id


__all__ = ["FollowedAgent"]
