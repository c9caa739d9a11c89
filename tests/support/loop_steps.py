"""Does something at one of the steps that an event loop takes, or that a test counts itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Steps:
    """Does something once after so many steps of the loop, or so many passes of an effect.

    Attributes:
        count: How many there were.
    """

    def __init__(self, at: int, unit: str, do: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._at, self._unit, self._do = at, unit, do

    def passed(self) -> None:
        if self._unit == "effects":
            self._count()

    def watch(self) -> Callable[[], None]:
        """Count the steps of the running loop; what is given ends that."""
        loop: Any = asyncio.get_running_loop()
        if self._unit != "steps":
            return lambda: None
        real = loop.call_soon

        def call_soon(*args: Any, **kwargs: Any) -> Any:
            self._count()
            return real(*args, **kwargs)

        loop.call_soon = call_soon

        def end() -> None:
            del loop.call_soon

        return end

    def _count(self) -> None:
        self.count += 1
        if self.count == self._at:
            self._do()
