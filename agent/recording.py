"""Records a running turn: its events are written to the turn log first, and then published.

The first events of a run are written in the transaction that begins or resumes the turn. The last are written in the
one that records how the run ended, so a reader that sees an ended turn finds all its events. The events in between are
written for all turns of an agent at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ..core import Emitter
from ..core.errors import AgentClosed, LeaseLost, WorldAgentError
from ..core.events import TurnEvent, UnnumberedEvent
from ..memory import OPEN, TurnStatus
from ..memory.turn_log import RecordedTurn, TurnLog
from ..storage import Lease, Leases, Transaction
from .following import Channel, Watch

_WRITE_SECONDS: Final = 0.02  # between two writes, so that events that follow each other closely share a row
_RETRY_SECONDS: Final = 0.25
_PRUNE_SECONDS: Final = 60.0
_PRUNED_TURNS: Final = 50  # in one transaction, so that none takes long

EmitEnd = Callable[[Emitter, TurnStatus], None]
"""Emits the end of a run."""


class Recorder:
    """The recordings of one agent, and the task that writes their events.

    Args:
        log: The turn log.
        leases: Which threads are owned.
        age: Seconds that events are stored after their turn last changed.

    Attributes:
        log: The turn log.
        leases: Which threads are owned.
        live: The recordings of running turns in this process, by turn.
        expected: The recordings of turns that have not begun yet, by turn.
        watches: The watches of turns that other processes run, by turn.
    """

    def __init__(self, log: TurnLog, leases: Leases, *, age: float) -> None:
        self.log = log
        self.leases = leases
        self.live: dict[str, Recording] = {}
        self.expected: dict[str, Recording] = {}
        self.watches: dict[str, Watch] = {}
        self._age = age
        self._dirty: dict[Recording, None] = {}
        self._writing: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._written = self._pruned = float("-inf")
        self._closed = False

    def watch(self, turn_id: str, last: int) -> Watch:
        """Return the watch of a turn that another process runs; `last` is the number of its last event so far.

        Raises:
            AgentClosed: The agent was closed meanwhile.
        """
        if self._closed:
            raise AgentClosed(
                "the agent was closed meanwhile", remedy="follow the turn with the agent that is open now"
            )
        found = self.watches.get(turn_id)
        if found is None:
            found = self.watches[turn_id] = Watch(self.log, self.leases, turn_id, last)
            found.task.add_done_callback(lambda _: self.watches.pop(turn_id))
        return found

    def wake(self, recording: Recording) -> None:
        """Write the pending events of a recording soon."""
        self._dirty[recording] = None
        if self._writing is None or self._writing.done():  # done also if it was cancelled before its first step
            # In an empty context, since it serves all turns and must not keep the role of the first one.
            self._writing = asyncio.get_running_loop().create_task(self._write(), context=Context())

    async def aclose(self) -> None:
        """Stop writing, pruning and watching."""
        self._closed = True
        for task in (self._writing, self._pruning, *(watch.task for watch in self.watches.values())):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._dirty:
            await asyncio.sleep(max(self._written + _WRITE_SECONDS - loop.time(), 0))
            self._written = loop.time()
            batches = [(recording, batch) for recording in self._dirty if (batch := recording.batch())]
            self._dirty.clear()
            done = await asyncio.gather(*(recording.write(batch) for recording, batch in batches))
            failed = {recording: None for (recording, _), written in zip(batches, done, strict=True) if not written}
            if failed:
                self._dirty.update(failed)
                await asyncio.sleep(_RETRY_SECONDS)
            if self._pruned + _PRUNE_SECONDS <= loop.time() and (self._pruning is None or self._pruning.done()):
                self._pruned = loop.time()
                self._pruning = loop.create_task(self._prune(), context=Context())  # writing does not wait for it

    async def _prune(self) -> None:
        with contextlib.suppress(WorldAgentError):  # the next pruning tries again
            while await self.log.prune(self._age, most=_PRUNED_TURNS) == _PRUNED_TURNS:
                pass


@dataclass(slots=True, eq=False)
class Recording:
    """The events of one run.

    Attributes:
        recorder: The recordings of the agent.
        turn: The recorded turn.
        again: Whether the turn ran before.
        channel: Publishes the events to readers in this process.
        on_begun: Called once the run owns its turn and its first events are written.
    """

    recorder: Recorder = field(repr=False)
    turn: RecordedTurn
    again: bool = False
    channel: Channel = field(default_factory=Channel)
    on_begun: Callable[[], None] | None = None
    _phase: Literal["before", "trying", "open", "ending", "over"] = "before"
    _pending: list[TurnEvent] = field(default_factory=list)
    _newest: int = 0  # the number of the last event taken
    _idle: asyncio.Event = field(default_factory=asyncio.Event)  # set while no batch is being written
    _unsure: bool = False  # whether a write failed although its events may have been written
    _lease: Lease | None = None
    _ends: dict[bool, list[TurnEvent]] = field(default_factory=dict)  # by whether the turn can be resumed later
    _end: list[TurnEvent] | None = None  # the one of `_ends` that the last attempt has written
    _end_written: bool = False

    def __post_init__(self) -> None:
        self._idle.set()

    def expect(self) -> None:
        """Announce a run that is about to begin, so that followers of its turn wait for it."""
        if not self.again:
            self.recorder.expected[self.turn.turn] = self

    def rename(self, turn_id: str) -> None:
        """Give the turn another id, before it begins."""
        self.recorder.expected.pop(self.turn.turn, None)
        self.turn = replace(self.turn, turn=turn_id)
        self.expect()

    def take(self, event: TurnEvent) -> None:
        """Take an event of the run, to be written and then published."""
        if isinstance(event, UnnumberedEvent):
            self.channel.publish_unnumbered(event, after=self._newest)
            return
        self._newest = event.seq
        if self._phase != "over":
            self._pending.append(event)
        if self._phase == "open":
            self.recorder.wake(self)

    # --- the run's first transaction ----------------------------------------------------------------------------------

    def write_begin(self, transaction: Transaction, _open: bool = True) -> None:
        """Write the recording and its first events, in the transaction that begins or resumes the turn."""
        self._phase = "trying"
        self.recorder.log.touch(transaction, self.turn)
        self.recorder.log.append(transaction, self.turn.turn, self._pending)

    def open(self, lease: Lease) -> None:
        """Publish the events of the committed first transaction, and write the following ones as they come."""
        self._lease, self._phase = lease, "open"
        first, self._pending = self._pending, []
        self.channel.begin(first[0].seq - 1 if first else 0)
        self.channel.publish(first)
        self.recorder.live[self.turn.turn] = self
        self.recorder.expected.pop(self.turn.turn, None)
        if self.on_begun is not None:
            self.on_begun()

    # --- in between: the recorder writes ------------------------------------------------------------------------------

    def batch(self) -> list[TurnEvent]:
        """Take the events to write now."""
        if self._phase != "open":
            return []
        batch, self._pending = self._pending, []
        if batch:
            self._idle.clear()
        return batch

    async def write(self, batch: list[TurnEvent]) -> bool:
        """Write a batch after the turn's earlier changes, and publish it; returns False on failure."""
        assert self._lease is not None, "a recording is written once it is open"
        failed = True
        try:
            await self._lease.commit(lambda transaction: self._append(transaction, batch))
            failed = self._unsure = False
            self.channel.publish(batch)
        except LeaseLost:
            failed = False
            self.close()
        except WorldAgentError:  # the turn itself reports a database that is down
            pass
        finally:
            if failed:
                self._unsure = True
                self._pending[:0] = batch
            self._idle.set()
        return not failed

    def _append(self, transaction: Transaction, events: Sequence[TurnEvent]) -> None:
        self.recorder.log.append(transaction, self.turn.turn, events, again=self._unsure)

    async def settled(self, *, patient: bool = False) -> None:
        """Wait until no batch is being written; a `patient` caller keeps waiting if it is cancelled."""
        while not self._idle.is_set():
            with contextlib.suppress(*((asyncio.CancelledError,) if patient else ())):
                await self._idle.wait()

    # --- the run's last transaction -----------------------------------------------------------------------------------

    def prepare_end(self, emit: Emitter, status: TurnStatus, tell: EmitEnd) -> None:
        """Prepare the events of the run's end, both for a turn that is then over and for one that can be resumed.

        The last transaction decides between them, because the turn can be cancelled until then. The recording must be
        `settled`.
        """
        self._phase = "ending"
        self._ends = {False: _end_events(emit, "cancelled" if status in OPEN else status, tell)}
        if status in OPEN:
            self._ends[True] = _end_events(emit, status, tell)

    def write_end(self, transaction: Transaction, still_open: bool) -> None:
        """Write the last events, in the transaction that records how the run ended."""
        self._end = self._ends.get(still_open, [])
        self._append(transaction, [*self._pending, *self._end])
        self.recorder.log.touch(transaction, self.turn)

    def end_written(self) -> None:
        """Note that the run's last transaction is committed."""
        self._end_written = True

    def finish(self, emit: Emitter) -> bool:
        """Publish the end of the run as it was written; returns False if none was written, and the caller emits one.

        An event that the caller emits then reaches readers only if the turn never began, so it has no second end.
        """
        if self._end is None or not self._end_written:
            if self.again or self._phase != "before":
                self._phase = "over"
            return False
        self._phase = "over"
        self.channel.publish(self._pending)
        for event in self._end:
            emit.give(event)
        self.channel.publish(self._end)
        return True

    def close(self) -> None:
        """Publish no further events."""
        if self._phase == "before" and not self.again and self._pending:  # it never began: only its own stream reads it
            self.channel.begin(0)
            self.channel.publish(self._pending)
        self._phase, self._pending = "over", []
        for known in (self.recorder.live, self.recorder.expected):
            if known.get(self.turn.turn) is self:
                del known[self.turn.turn]
        self.channel.close()


def _end_events(emit: Emitter, status: TurnStatus, tell: EmitEnd) -> list[TurnEvent]:
    shown: list[TurnEvent] = []
    tell(emit.ahead(shown.append), status)
    return shown


__all__ = ["EmitEnd", "Recorder", "Recording"]
