"""Numbers and times the events of one turn and hands them on. It keeps none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._clock import Clock
from .events import Event, TextDelta, TextReplaced

Sink = Callable[[Event], None]


class Emitter:
    """Makes the events of one turn.

    Args:
        turn_id: The turn's id.
        clock: Where the events' times come from.
        sink: What gets every event, in order; it must not block.
    """

    def __init__(self, turn_id: str, clock: Clock, sink: Sink) -> None:
        self.turn_id = turn_id
        self._clock = clock
        self._sink = sink
        self._seq = 0
        self._standing = False

    @property
    def standing(self) -> bool:
        """Whether a reader who follows the deltas sees any text now."""
        return self._standing

    def __call__(self, kind: type[Any], /, **fields: Any) -> None:
        """Emit one event of `kind`; the turn's id, the number and the time are added."""
        self._seq += 1
        event = kind(turn_id=self.turn_id, seq=self._seq, at=self._clock.now(), **fields)
        if isinstance(event, TextDelta):
            self._standing = True
        elif isinstance(event, TextReplaced):
            self._standing = bool(event.text)
        self._sink(event)
