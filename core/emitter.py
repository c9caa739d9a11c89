"""Numbers and times the events of one turn and hands them on. It keeps none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from .clock import Clock
from .events import Event, ReasoningDelta, StepEnded, TextDelta, TextReplaced

Sink = Callable[[Event], None]
CaptureKind = Literal["inputs", "outputs", "prompts"]


class Capture(Protocol):
    """Takes what no event has: what calls got and gave, for traces alone (H5)."""

    def wants(self, what: CaptureKind) -> bool:
        """Whether such a thing is captured."""
        ...

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Take what is captured, as JSON; it must not block."""
        ...


class Emitter:
    """Makes the events of one turn.

    Args:
        turn_id: The turn's id.
        clock: Where the events' times come from.
        sink: What gets every event, in order; it must not block.
        capture: What takes the rest, where something does.
    """

    def __init__(self, turn_id: str, clock: Clock, sink: Sink, capture: Capture | None = None) -> None:
        self.turn_id = turn_id
        self._clock = clock
        self._sink = sink
        self._capture = capture
        self._seq = 0
        self._standing = False

    @property
    def standing(self) -> bool:
        """Whether a reader who follows the deltas sees any text now."""
        return self._standing

    def go_on_after(self, seq: int) -> None:
        """Number the next event `seq + 1`: the turn told so much in earlier runs."""
        self._seq = seq

    def ahead(self, sink: Sink) -> Emitter:
        """One that goes on from here into another sink, for events that may come to nothing."""
        other = Emitter(self.turn_id, self._clock, sink)
        other._seq, other._standing = self._seq, self._standing
        return other

    def give(self, event: Event) -> None:
        """Hand on an event that was made ahead."""
        self._seq = event.seq
        self._sink(event)

    def reason(self, text: str, *, step: int) -> None:
        """Hand on what the model thinks, which has no number and is not kept."""
        self._sink(ReasoningDelta(turn_id=self.turn_id, at=self._clock.now(), text=text, step=step))

    def wants(self, what: CaptureKind) -> bool:
        """Whether such a thing is captured."""
        return self._capture is not None and self._capture.wants(what)

    def keep(self, call_id: str, what: CaptureKind, value: Any) -> None:
        """Hand on what is captured of the call, task or turn `call_id`, where it is wanted."""
        if self._capture is not None and self._capture.wants(what):
            self._capture.keep(self.turn_id, call_id, what, value)

    def __call__(self, kind: type[Any], /, **fields: Any) -> None:
        """Emit one event of `kind`; the turn's id, the number and the time are added."""
        self._seq += 1
        event = kind(turn_id=self.turn_id, seq=self._seq, at=self._clock.now(), **fields)
        if kind is TextDelta:
            self._standing = True
        elif kind is TextReplaced:
            self._standing = bool(event.text)
        elif kind is StepEnded and event.interim:
            self._standing = False
        self._sink(event)
