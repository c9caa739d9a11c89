"""The threads whose summaries failed recently.

The list is in the memory of this process, so another process can try at once.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

from ..core import Clock

COOLDOWN: Final = timedelta(minutes=5)
MAX_THREADS: Final = 1000


class SummaryCooldown:
    """The threads whose summaries failed recently in this process. They are not tried again at every turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: OrderedDict[str, datetime] = OrderedDict()

    def begin(self, thread: str) -> None:
        """Try no summary of a thread for a while."""
        self._until[thread] = self._clock.now() + COOLDOWN
        self._until.move_to_end(thread)
        while len(self._until) > MAX_THREADS:
            self._until.popitem(last=False)

    def __contains__(self, thread: str) -> bool:
        until = self._until.get(thread)
        return until is not None and self._clock.now() < until
