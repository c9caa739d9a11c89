"""One run at a recorded turn: its events are written down first, and handed out then.

Writing begins with the transaction that begins the turn, or by which it goes on, and ends with the one that says what
became of it; so who sees that a turn no longer runs finds all its events. `_recorder` writes what comes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...core import Emitter
from ...core.errors import LeaseLost, WorldAgentError
from ...core.events import Event, ReasoningDelta
from ...memory import OPEN, TurnStatus
from ...memory.events import Lines, RecordedTurn
from ...storage import Lease, Transaction
from ._channel import Channel

if TYPE_CHECKING:
    from ._recorder import Recorder

Tell = Callable[[Emitter, TurnStatus], None]
"""Emits how a run ends."""


@dataclass(slots=True, eq=False)
class Recording:
    """The events of one run.

    Attributes:
        turn: The turn that is recorded.
        again: Whether it ran before.
        channel: What readers in this process take events from.
        on_begun: Called once the run owns its turn, and its first events are written.
    """

    recorder: Recorder = field(repr=False)
    turn: RecordedTurn
    again: bool = False
    channel: Channel = field(default_factory=Channel)
    on_begun: Callable[[], None] | None = None
    _phase: Literal["before", "trying", "open", "ending", "over"] = "before"
    _pending: list[Event] = field(default_factory=list)
    _newest: int = 0  # the number of the last event that it got
    _writing: asyncio.Future[None] | None = None
    _unsure: bool = False  # whether a write failed, which may be there all the same
    _lease: Lease | None = None
    _ending: Ending | None = None

    def take(self, event: Event) -> None:
        """Get an event of the run; whoever reads gets it later."""
        if isinstance(event, ReasoningDelta):
            self.channel.think(event, after=self._newest)
            return
        self._newest = event.seq
        match self._phase:
            case "over":
                pass
            case "open":
                self._pending.append(event)
                self.recorder.wake(self)
            case _:
                self._pending.append(event)

    # --- the run's first transaction ------------------------------------------------------------------------------

    def beginning(self, transaction: Transaction) -> None:
        """Write down that the turn is recorded, and what it told by now, with what begins it."""
        self._phase = "trying"
        log = self.recorder.log
        (log.go_on if self.again else log.begin)(transaction, self.turn)
        if self._pending:
            log.append(transaction, self.turn.turn, _lines(self._pending))

    def going_on(self, transaction: Transaction, still: bool) -> None:
        """The same, for a turn that is there already."""
        self.beginning(transaction)

    def open(self, lease: Lease) -> None:
        """The run's first transaction is written: hand out what was in it, and write what comes from now on."""
        self._lease, self._phase = lease, "open"
        told, self._pending = self._pending, []
        self.channel.begin(told[0].seq - 1 if told else 0)
        self.channel.publish(told)
        self.recorder.live[self.turn.turn] = self
        self.recorder.coming.pop(self.turn.turn, None)
        if self.on_begun is not None:
            self.on_begun()

    # --- in between: what the recorder writes ---------------------------------------------------------------------

    def batch(self) -> list[Event]:
        """Take what is to be written now."""
        if self._phase != "open":
            return []
        batch, self._pending = self._pending, []
        if batch:
            self._writing = asyncio.get_running_loop().create_future()
        return batch

    async def write(self, batch: list[Event]) -> bool:
        """Write a batch down, behind what the turn did before it, and hand it out; False where it failed."""
        assert self._lease is not None, "a recording is written once it is open"
        outcome: Literal["done", "failed", "lost"] = "failed"
        try:
            await self._lease.commit(lambda transaction: self.append(transaction, batch))
            outcome = "done"
        except LeaseLost:
            outcome = "lost"
        except WorldAgentError:  # a database that is down is told by the turn itself
            pass
        finally:
            self._written(batch, outcome)
        return outcome != "failed"

    def append(self, transaction: Transaction, events: list[Event]) -> None:
        """Write events down that come next; those of a write that failed come again, and stand there once."""
        self.recorder.log.append(transaction, self.turn.turn, _lines(events), again=self._unsure)

    def _written(self, batch: list[Event], outcome: Literal["done", "failed", "lost"]) -> None:
        match outcome:
            case "done":
                self._unsure = False
                self.channel.publish(batch)
            case "failed":
                self._unsure = True
                self._pending[:0] = batch
            case "lost":
                self.close()
        if self._writing is not None and not self._writing.done():
            self._writing.set_result(None)
        self._writing = None

    async def settled(self, *, patient: bool = False) -> None:
        """Wait until nothing of it is being written; who is `patient` waits on where he is cancelled."""
        while self._writing is not None:
            with contextlib.suppress(*((asyncio.CancelledError,) if patient else ())):
                await asyncio.wait({self._writing})

    # --- the run's last transaction -------------------------------------------------------------------------------

    def ending(self, emit: Emitter, status: TurnStatus, tell: Tell) -> Ending:
        """What is written with what became of the turn; the recording is `settled`."""
        self._phase = "ending"
        self._ending = Ending(self, self._pending, _told(emit, "cancelled" if status in OPEN else status, tell))
        if status in OPEN:
            self._ending.open = _told(emit, status, tell)
        return self._ending

    def finish(self, emit: Emitter) -> bool:
        """Hand out how the run ended, as it was written; False where nothing was, and who ran it tells its end.

        What is told then reaches a reader only where the turn never began, so that there is no other end of it.
        """
        ending = self._ending
        if ending is None or ending.written is None:
            if self.again or self._phase != "before":
                self._phase = "over"
            return False
        self._phase = "over"
        self.channel.publish(ending.pending)
        for event in ending.written:
            emit.give(event)
        self.channel.publish(ending.written)
        return True

    def close(self) -> None:
        """Hand out nothing more."""
        if self._phase == "before" and not self.again and self._pending:  # of a turn that never began; nobody else
            self.channel.begin(0)
            self.channel.publish(self._pending)
        self._phase, self._pending = "over", []
        if self.recorder.live.get(self.turn.turn) is self:
            del self.recorder.live[self.turn.turn]
        if self.recorder.coming.get(self.turn.turn) is self:
            del self.recorder.coming[self.turn.turn]
        self.channel.close()


@dataclass(slots=True, eq=False)
class Ending:
    """How a run ends, made before it is known: who wants the turn cancelled may be heard at the last moment.

    Attributes:
        pending: What was told before.
        over: What is told where the turn is over then.
        open: What is told where it can go on later.
        written: What was written; None before.
    """

    recording: Recording
    pending: list[Event]
    over: list[Event]
    open: list[Event] = field(default_factory=list)
    written: list[Event] | None = None
    _tried: list[Event] = field(default_factory=list)

    def __call__(self, transaction: Transaction, still: bool) -> None:
        """Write it; `still` says whether the turn can go on later."""
        self._tried = self.open if still else self.over
        self.recording.append(transaction, [*self.pending, *self._tried])
        self.recording.recorder.log.changed(transaction, self.recording.turn.turn)

    def done(self) -> None:
        """It is written."""
        self.written = self._tried


def _told(emit: Emitter, status: TurnStatus, tell: Tell) -> list[Event]:
    told: list[Event] = []
    tell(emit.ahead(told.append), status)
    return told


def _lines(events: list[Event]) -> Lines:
    return Lines(events[0].seq, [event.model_dump_json() for event in events])


__all__ = ["Ending", "Recording", "Tell"]
