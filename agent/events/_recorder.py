"""Writes the events of all recorded turns of an agent, those of one moment at once."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context
from typing import Final

from ...core import Clock
from ...core.errors import AgentClosed, WorldAgentError
from ...memory.events import EventLog, RecordedTurn
from ...storage import Database, Leases
from ._elsewhere import Elsewhere
from ._recording import Recording

_APART: Final = 0.02  # seconds between two writes, so that what comes close together stands in one row
_AGAIN: Final = 0.25  # seconds after which a write is tried again that failed
_PRUNE_EVERY: Final = 60.0  # seconds
_PRUNED_AT_ONCE: Final = 50  # turns, so that no transaction lasts


class Recorder:
    """The recordings of one agent.

    Args:
        database: Where the events are kept.
        leases: Who owns threads.
        clock: Tells the time.
        age: Seconds that events are kept after their turn last changed.

    Attributes:
        log: The event log.
        leases: Who owns threads.
        live: The recordings of runs that are under way here, by turn.
        coming: Those of turns that have not begun yet.
        elsewhere: Turns of other processes that are followed here.
    """

    def __init__(self, database: Database, leases: Leases, clock: Clock, *, age: float) -> None:
        self.log = EventLog(database, clock)
        self.leases = leases
        self.live: dict[str, Recording] = {}
        self.coming: dict[str, Recording] = {}
        self.elsewhere: dict[str, Elsewhere] = {}
        self._dirty: dict[Recording, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._closed = False
        self._last = 0.0
        self._age = age
        self._pruned = float("-inf")

    def recording(self, turn: RecordedTurn, *, again: bool = False) -> Recording:
        """Record one run at a turn; `again` says that there is the turn already."""
        return Recording(self, turn, again)

    def expect(self, recording: Recording) -> None:
        """A run at a turn is about to begin; who follows the turn already waits for it."""
        if not recording.again:
            self.coming[recording.turn.turn] = recording

    def watched(self, turn_id: str, last: int) -> Elsewhere:
        """A turn that another process runs, as all who follow it here see it; `last` is its last event by now.

        Raises:
            AgentClosed: The agent was closed meanwhile.
        """
        if self._closed:
            raise AgentClosed(
                "the agent was closed meanwhile", remedy="follow the turn with the agent that is open now"
            )
        found = self.elsewhere.get(turn_id)
        if found is None:
            found = self.elsewhere[turn_id] = Elsewhere(self.log, self.leases, turn_id, last)
            found.task.add_done_callback(lambda _: self.elsewhere.pop(turn_id))
        return found

    def wake(self, recording: Recording) -> None:
        """A recording has something to write."""
        self._dirty[recording] = None
        if self._task is None or self._task.done():  # one that was cancelled before its first step is done, too
            # Not in the context of the turn that happens to be the first, nor with its role: it is for all.
            self._task = asyncio.get_running_loop().create_task(self._write(), context=Context())

    async def aclose(self) -> None:
        """End with what is being written, and what is looked for."""
        self._closed = True
        tasks = [self._task, self._pruning, *(each.task for each in self.elsewhere.values())]
        for task in tasks:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._dirty:
                await asyncio.sleep(max(self._last + _APART - loop.time(), 0))
                self._last = loop.time()
                batches = [(recording, batch) for recording in self._dirty if (batch := recording.batch())]
                self._dirty.clear()
                written = await asyncio.gather(*(recording.write(batch) for recording, batch in batches))
                if not all(written):
                    again = (recording for (recording, _), done in zip(batches, written, strict=True) if not done)
                    self._dirty.update(dict.fromkeys(again))
                    await asyncio.sleep(_AGAIN)
                self._prune_if_due(loop.time())
        finally:
            self._task = None

    def _prune_if_due(self, now: float) -> None:
        """Let go of what is too old, every now and then, for as long as something new comes; that waits for nothing."""
        running = self._pruning is not None and not self._pruning.done()
        if not running and now - self._pruned >= _PRUNE_EVERY:
            self._pruned = now
            self._pruning = asyncio.get_running_loop().create_task(self._prune(), context=Context())

    async def _prune(self) -> None:
        with contextlib.suppress(WorldAgentError):  # another time
            while await self.log.prune(self._age, most=_PRUNED_AT_ONCE) == _PRUNED_AT_ONCE:
                pass


__all__ = ["Recorder"]
