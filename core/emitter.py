"""Adds numbers and times to the events of one turn and passes them to a sink. It stores no event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from .clock import Clock
from .events import Event, ReasoningDelta, StepEnded, TextDelta, TextReplaced

Sink = Callable[[Event], None]
CaptureKind = Literal["inputs", "outputs", "prompts"]


class Capture(Protocol):
    """Receives the inputs and outputs of calls, which no event has. Only traces use them (H5)."""

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        ...

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Receive a captured value, as JSON. It must not block."""
        ...


class Emitter:
    """Makes the events of one turn.

    Args:
        turn_id: The turn's id.
        clock: The source of the events' times.
        sink: Receives every event, in order; it must not block.
        capture: Receives inputs and outputs of calls; None captures nothing.
    """

    def __init__(self, turn_id: str, clock: Clock, sink: Sink, capture: Capture | None = None) -> None:
        self.turn_id = turn_id
        self._clock = clock
        self._sink = sink
        self._capture = capture
        self._seq = 0
        self._open_text = False

    @property
    def standing(self) -> bool:
        """Whether a client that follows the deltas shows any text at this point."""
        return self._open_text

    def continue_after(self, seq: int) -> None:
        """Number the next event `seq + 1`, after the events that earlier runs of the turn emitted."""
        self._seq = seq

    def ahead(self, sink: Sink) -> Emitter:
        """An emitter that continues from here into another sink, for events that may be dropped later."""
        other = Emitter(self.turn_id, self._clock, sink)
        other._seq, other._open_text = self._seq, self._open_text
        return other

    def give(self, event: Event) -> None:
        """Pass on an event that an emitter from `ahead` made."""
        self._seq = event.seq
        self._sink(event)

    def reason(self, text: str, *, step: int) -> None:
        """Pass on reasoning text of the model. It has no number and is not recorded."""
        self._sink(ReasoningDelta(turn_id=self.turn_id, at=self._clock.now(), text=text, step=step))

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        return self._capture is not None and self._capture.wants(what)

    def keep(self, call_id: str, what: CaptureKind, value: Any) -> None:
        """Pass on a value of the call, task or turn `call_id`, if this kind of value is captured."""
        if self._capture is not None and self._capture.wants(what):
            self._capture.keep(self.turn_id, call_id, what, value)

    def __call__(self, kind: type[Any], /, **fields: Any) -> None:
        """Emit one event of `kind` and add the turn's id, the number and the time."""
        self._seq += 1
        event = kind(turn_id=self.turn_id, seq=self._seq, at=self._clock.now(), **fields)
        if kind is TextDelta:
            self._open_text = True
        elif kind is TextReplaced:
            self._open_text = bool(event.text)
        elif kind is StepEnded and event.interim:
            self._open_text = False
        self._sink(event)
