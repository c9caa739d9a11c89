"""Roles of paused turns, in memory only, for callers that resume with `on_role_change="pin"` (R13)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...core import Clock
from ...role_resolution import ResolvedRole

MAX_PINS: Final = 1000


class Pins:
    """Holds resolved roles for a limited time, and a limited number of them.

    Args:
        ttl: Seconds that each role is held.
        clock: Source of time.
    """

    def __init__(self, ttl: float, clock: Clock) -> None:
        self._ttl = ttl
        self._clock = clock
        self._held: OrderedDict[str, tuple[float, ResolvedRole]] = OrderedDict()

    def keep(self, turn_id: str, role: ResolvedRole) -> None:
        """Hold the role of a paused turn; drops the oldest roles when there are too many."""
        self._held.pop(turn_id, None)
        self._held[turn_id] = (self._clock.monotonic() + self._ttl, role)
        now = self._clock.monotonic()
        while self._held and (len(self._held) > MAX_PINS or next(iter(self._held.values()))[0] <= now):
            self._held.popitem(last=False)

    def get(self, turn_id: str) -> ResolvedRole | None:
        """Return the role of a paused turn, or None if it has expired or is not held."""
        end, role = self._held.get(turn_id, (0.0, None))
        if role is not None and end > self._clock.monotonic():
            return role
        self.drop(turn_id)
        return None

    def drop(self, turn_id: str) -> None:
        """Drop the role of a turn that is over."""
        self._held.pop(turn_id, None)
